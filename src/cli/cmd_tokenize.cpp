// SPDX-License-Identifier: Apache-2.0
// fathom tokenize: the tokens of a text with pieces and byte offsets. Only the vocabulary of the
// file is read; no weights are loaded.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <optional>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "cli/arguments.hpp"
#include "cli/cache_dir.hpp"
#include "cli/command.hpp"
#include "cli/interrupt.hpp"
#include "cli/model_flags.hpp"
#include "cli/terminal.hpp"
#include "gguf/gguf_file.hpp"
#include "model/vocab.hpp"
#include "report/result.hpp"
#include "report/table.hpp"
#include "text/tokenizer.hpp"

namespace fathom::cli {
namespace {

struct TokenizeFlags {
  std::string model;
  std::optional<std::string> prompt;
  std::string file;
  bool from_stdin = false;
  bool ids = false;
  bool special = false;
  bool no_bos = false;
};

std::string input_text(const TokenizeFlags& flags) {
  const int given = flags.prompt.has_value() + !flags.file.empty() + flags.from_stdin;
  if (given != 1) {
    fail(ErrorCode::usage, "give the text once: -p TEXT, -f FILE, or --stdin");
  }
  if (flags.from_stdin || flags.prompt == "-") return read_text("-");
  return flags.prompt ? *flags.prompt : read_text(flags.file);
}

std::string ids_line(const std::vector<text::TokenSpan>& tokens) {
  std::string line;
  for (const text::TokenSpan& token : tokens) {
    line += fmt::format("{}{}", line.empty() ? "" : " ", token.id);
  }
  return line + "\n";
}

Json tokens_json(const text::Tokenizer& tokenizer, const std::vector<text::TokenSpan>& tokens) {
  Json out = Json::array();
  for (const text::TokenSpan& token : tokens) {
    const std::string piece = tokenizer.decode_piece(token.id);
    Json bytes = Json::array();
    for (unsigned char byte : piece) bytes.push_back(byte);
    out.push_back({{"id", token.id},
                   {"piece", is_valid_utf8(piece) ? Json(piece) : Json(nullptr)},
                   {"bytes", bytes},
                   {"begin", token.begin},
                   {"end", token.end},
                   {"control", tokenizer.is_control(token.id)}});
  }
  return out;
}

int cmd_tokenize(const TokenizeFlags& flags, const Context& context) {
  if (flags.ids && context.flags.json) {
    fail(ErrorCode::usage, "--ids prints a line of ids and --json a document: give one of them");
  }
  const std::string text = input_text(flags);
  const gguf::File file = gguf::File::open(resolve_model(flags.model), gguf::OpenMode::inspect);
  const text::Tokenizer tokenizer = tokenizer_from_gguf(file);
  const std::vector<text::TokenSpan> tokens = tokenizer.encode_with_offsets(
      text, {.add_special = !flags.no_bos, .parse_special = flags.special});
  if (interrupted()) fail(ErrorCode::cancelled, "interrupted");
  if (const size_t lost = tokenizer.count_lost_bytes(text, tokens); lost > 0) {
    TerminalLog(context.flags.verbose, context.flags.quiet)
        .write(LogLevel::warning,
               fmt::format("{} of the {} bytes of the text are left out: the vocabulary has no "
                           "token for them",
                           lost, text.size()));
  }
  if (flags.ids) {
    write_stdout(ids_line(tokens));
    return 0;
  }
  if (context.flags.json) {
    report::Result document;
    document.command = context.arguments;
    document.machine = report::machine_json(measure::inspect_machine());
    document.summary = {{"n_tokens", tokens.size()},
                        {"n_bytes", text.size()},
                        {"tokens", tokens_json(tokenizer, tokens)}};
    write_stdout(dump_json(document.to_json(), 2) + "\n");
    return 0;
  }
  report::Table table(
      {{"id"}, {"begin"}, {"end"}, {"piece", report::Align::left}, {"", report::Align::left}});
  for (const text::TokenSpan& token : tokens) {
    table.add({fmt::format("{}", token.id), fmt::format("{}", token.begin),
               fmt::format("{}", token.end),
               fmt::format("'{}'", printable(tokenizer.decode_piece(token.id))),
               tokenizer.is_control(token.id) ? "control" : ""});
  }
  write_stdout(table.text(stdout_colour()));
  say(context.flags.quiet, "{} tokens, {} bytes", tokens.size(), text.size());
  return 0;
}

}  // namespace

RunCommand add_tokenize(CLI::App& app, Context& context) {
  auto flags = std::make_shared<TokenizeFlags>();
  add_model_argument(app, flags->model);
  app.add_option("-p,--prompt", flags->prompt, "The text; - reads it from stdin")
      ->type_name("TEXT");
  app.add_option("-f,--file", flags->file, "A file with the text; - is stdin")->type_name("FILE");
  app.add_flag("--stdin", flags->from_stdin, "Read the text from stdin");
  app.add_flag("--ids", flags->ids, "Only the ids, separated by blanks, on one line");
  app.add_flag("--special", flags->special, "Text such as <|im_start|> becomes a control token");
  app.add_flag("--no-bos", flags->no_bos, "Add no BOS or EOS, whatever the file says");
  return [flags, &context] { return cmd_tokenize(*flags, context); };
}

}  // namespace fathom::cli
