// SPDX-License-Identifier: Apache-2.0
// fathom report: the summaries, gates and tables of result files, computed again from their
// samples, and whether what the files store is what their samples give.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/error.hpp"
#include "base/output_file.hpp"
#include "base/utf8.hpp"
#include "cli/arguments.hpp"
#include "cli/command.hpp"
#include "cli/profile.hpp"
#include "cli/terminal.hpp"
#include "report/recompute.hpp"
#include "report/result.hpp"
#include "report/table.hpp"

namespace fathom::cli {
namespace {

struct ReportFlags {
  std::vector<std::string> files;
  std::string html;
};

// Messages of the readers below name the place in the document; this adds the file.
report::Reviewed review_file(const std::string& path, const std::string& html) {
  const std::string text = read_text(path, report::kLargestDocument);
  const Json document = parse_json(text, path);
  try {
    report::Reviewed reviewed = report::review(document);
    if (!html.empty()) write_text_file(html, report::page_of(document));
    return reviewed;
  } catch (const Error& e) {
    fail(e.code(), "{}: {}", path, e.what());
  }
}

std::string gates_text(const std::vector<report::Gate>& gates, bool colour) {
  report::Table table(
      {{"gate", report::Align::left}, {"", report::Align::left}, {"why", report::Align::left}});
  for (const report::Gate& gate : gates) {
    table.add({gate.id, gate.pass ? "pass" : "FAIL", printable(gate.why, std::string::npos)},
              gate.pass ? report::Paint::plain : report::Paint::bad);
  }
  return table.empty() ? "" : table.text(colour);
}

// A stranger's text on a terminal: nothing in it moves the cursor.
std::string printable_lines(const std::string& text) {
  std::string out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    out += printable(text.substr(begin, end - begin), std::string::npos) + "\n";
    begin = end + 1;
  }
  return out;
}

std::string file_text(const std::string& path, const report::Reviewed& file, bool colour) {
  std::string out = report::painted(path, report::Paint::heading, colour) + "\n" +
                    printable(file.command, std::string::npos) + "\n\n" +
                    printable_lines(file.recomputed.text);
  if (!file.recomputed.text.empty()) out += "\n";
  out += gates_text(file.gates, colour);
  if (file.n_stored > 0) {
    out += fmt::format("the last {} as stored: samples do not decide them\n", file.n_stored);
  }
  for (const std::string& note : file.recomputed.notes) out += note + "\n";
  if (file.differences.empty()) {
    return out + "What the file stores is what its samples give.\n";
  }
  for (const std::string& difference : file.differences) {
    out += report::painted(printable(difference, std::string::npos), report::Paint::bad, colour) +
           "\n";
  }
  return out + "What the file stores is not what its samples give.\n";
}

Json file_json(const std::string& path, const report::Reviewed& file) {
  Json gates = Json::array();
  for (const report::Gate& gate : file.gates) gates.push_back(report::gate_json(gate));
  return {{"path", path},
          {"command", file.command},
          {"trusted", file.trusted()},
          {"differences", file.differences},
          {"gates", gates},
          {"recomputed", file.recomputed.summary},
          {"notes", file.recomputed.notes}};
}

int cmd_report(const ReportFlags& flags, const Context& context) {
  Json files = Json::array();
  std::string text;
  bool trusted = true;
  if (!flags.html.empty()) require_writable(flags.html);
  if (!flags.html.empty() && flags.files.size() > 1) {
    fail(ErrorCode::usage, "--html: a page shows one file, found {}", flags.files.size());
  }
  for (const std::string& path : flags.files) {
    const report::Reviewed file = review_file(path, flags.html);
    trusted = trusted && file.trusted();
    files.push_back(file_json(path, file));
    text += (text.empty() ? "" : "\n") + file_text(path, file, stdout_colour());
  }
  if (context.flags.json) {
    report::Result document;
    document.command = context.arguments;
    document.machine = report::machine_json(measure::inspect_machine());
    document.summary = {{"files", files}};
    write_stdout(dump_json(document.to_json(), 2) + "\n");
  } else {
    write_stdout(text);
  }
  return trusted ? 0 : exit_status(ErrorCode::untrusted);
}

}  // namespace

RunCommand add_report(CLI::App& app, Context& context) {
  auto flags = std::make_shared<ReportFlags>();
  app.add_option("FILE", flags->files,
                 "Documents that --json of bench, attribute, probe, run, perplexity or doctor "
                 "printed; - is stdin")
      ->required()
      ->type_name("");
  app.add_option("--html", flags->html, "Write the page of a result of attribute again")
      ->type_name("FILE");
  return [flags, &context] { return cmd_report(*flags, context); };
}

}  // namespace fathom::cli
