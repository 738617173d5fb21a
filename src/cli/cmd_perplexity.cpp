// SPDX-License-Identifier: Apache-2.0
// fathom perplexity: exp of the mean negative log likelihood of a text, in windows of --ctx tokens,
// as llama-perplexity does it: windows do not overlap, each starts with BOS where the model has one
// (in place of its first token), and its second half is scored. With --stride S windows begin every
// S tokens and the last S positions of each are scored. --save-base stores the scored logits;
// --base reads them and gives the KL divergence sum p_base ln(p_base / p), its spread, and how
// often both like the same token best.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/error.hpp"
#include "base/finite.hpp"
#include "base/fnv1a.hpp"
#include "base/output_file.hpp"
#include "cli/arguments.hpp"
#include "cli/cache_dir.hpp"
#include "cli/command.hpp"
#include "cli/interrupt.hpp"
#include "cli/model_flags.hpp"
#include "cli/terminal.hpp"
#include "measure/clock.hpp"
#include "measure/statistics.hpp"
#include "report/recompute.hpp"
#include "report/result.hpp"
#include "report/table.hpp"

namespace fathom::cli {
namespace {

struct PerplexityFlags {
  ModelFlags model;
  std::string file;
  int64_t n_ctx = 512;
  int64_t stride = 0;
  int64_t max_windows = -1;
  std::string save_base, base;
};

// Where a window stands in the text, and which of its positions are scored: [score_from, n - 1).
struct Window {
  int64_t begin;
  int64_t n_tokens;
  int64_t score_from;
};

std::vector<Window> windows_of(int64_t n_tokens, const PerplexityFlags& flags) {
  std::vector<Window> windows;
  const int64_t step = flags.stride > 0 ? flags.stride : flags.n_ctx;
  const int64_t score_from = flags.stride > 0 ? flags.n_ctx - 1 - flags.stride : flags.n_ctx / 2;
  for (int64_t begin = 0; begin + flags.n_ctx <= n_tokens; begin += step) {
    if (flags.max_windows >= 0 && static_cast<int64_t>(windows.size()) == flags.max_windows) break;
    windows.push_back({begin, flags.n_ctx, score_from});
  }
  return windows;
}

double log_sum_exp(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit) - top);
  return top + std::log(sum);
}

int64_t argmax(std::span<const float> row) {
  return std::max_element(row.begin(), row.end()) - row.begin();
}

// A file of scored logits: the header, then for each scored position its f32 logits in order.
struct BaseHeader {
  char magic[8] = {'F', 'T', 'H', 'L', 'O', 'G', 'I', 'T'};
  uint32_t version = 1;
  uint32_t n_ctx = 0;
  int64_t vocab_size = 0;
  int64_t stride = 0;
  int64_t n_windows = 0;
  uint64_t tokens_hash = 0;  // of every token of the windows
};

uint64_t hash_tokens(std::span<const int32_t> tokens) {
  Fnv1a hash;
  for (const int32_t token : tokens) hash.add(static_cast<uint32_t>(token));
  return hash.value();
}

class BaseReader {
 public:
  BaseReader(const std::string& path, const BaseHeader& expected)
      : path_(path), file_(path, std::ios::binary) {
    BaseHeader found;
    if (!file_.read(reinterpret_cast<char*>(&found), sizeof found) ||
        std::memcmp(found.magic, expected.magic, sizeof found.magic) != 0) {
      fail(ErrorCode::bad_file, "{}: not a file that --save-base wrote", path);
    }
    if (std::memcmp(&found, &expected, sizeof found) != 0) {
      fail(ErrorCode::bad_file,
           "{}: stored for another text or window (vocabulary {}, ctx {}, stride {}, {} windows), "
           "this run has (vocabulary {}, ctx {}, stride {}, {} windows)",
           path, found.vocab_size, found.n_ctx, found.stride, found.n_windows, expected.vocab_size,
           expected.n_ctx, expected.stride, expected.n_windows);
    }
    row_.resize(static_cast<size_t>(expected.vocab_size));
  }
  std::span<const float> next() {
    if (!file_.read(reinterpret_cast<char*>(row_.data()),
                    static_cast<std::streamsize>(row_.size() * sizeof(float)))) {
      fail(ErrorCode::bad_file, "{}: ends too early, store it again with --save-base", path_);
    }
    return row_;
  }

 private:
  std::string path_;
  std::ifstream file_;
  std::vector<float> row_;
};

// Gives the file its name in close(), whole; one that is not closed leaves nothing behind.
class BaseWriter {
 public:
  BaseWriter(const std::string& path, const BaseHeader& header)
      : path_(path), partial_path_(partial_name(path)), file_(partial_path_, std::ios::binary) {
    try {
      write(&header, sizeof header);
    } catch (...) {
      std::remove(partial_path_.c_str());
      throw;
    }
  }
  ~BaseWriter() {
    if (!partial_path_.empty()) std::remove(partial_path_.c_str());
  }
  BaseWriter(const BaseWriter&) = delete;
  BaseWriter& operator=(const BaseWriter&) = delete;

  void add(std::span<const float> row) { write(row.data(), row.size_bytes()); }
  void close() {
    file_.close();
    check();
    std::error_code problem;
    std::filesystem::rename(partial_path_, path_, problem);
    if (problem) fail(ErrorCode::bad_file, "cannot write {}: {}", path_, problem.message());
    partial_path_.clear();
  }

 private:
  void write(const void* data, size_t bytes) {
    file_.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
    check();
  }
  void check() {
    if (!file_) {
      fail(ErrorCode::bad_file, "cannot write {}: is the folder there and the disk not full?",
           partial_path_);
    }
  }
  std::string path_, partial_path_;
  std::ofstream file_;
};

// One number for each scored token.
struct Scores {
  std::vector<double> nll;
  std::vector<double> kl;
  int64_t same_top = 0;
};

class Scorer {
 public:
  Scorer(std::optional<BaseReader>& reader, std::optional<BaseWriter>& writer)
      : reader_(reader), writer_(writer) {}

  void add(std::span<const float> logits, int32_t next_token, int64_t position) {
    if (!all_finite(logits)) {
      fail(ErrorCode::bad_file,
           "the logits at position {} of the text are not finite: check the model file", position);
    }
    const double norm = log_sum_exp(logits);
    scores_.nll.push_back(norm - static_cast<double>(logits[static_cast<size_t>(next_token)]));
    if (writer_) writer_->add(logits);
    if (reader_) add_divergence(logits, norm);
  }
  Scores finish() {
    if (writer_) writer_->close();
    return std::move(scores_);
  }

 private:
  void add_divergence(std::span<const float> logits, double norm) {
    const std::span<const float> base = reader_->next();
    if (!all_finite(base)) {
      fail(ErrorCode::bad_file, "--base: the stored logits of scored token {} are not finite",
           scores_.nll.size());
    }
    const double base_norm = log_sum_exp(base);
    double kl = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      const double log_p = static_cast<double>(base[i]) - base_norm;
      if (log_p > -80) kl += std::exp(log_p) * (log_p - (static_cast<double>(logits[i]) - norm));
    }
    scores_.kl.push_back(kl);
    scores_.same_top += argmax(base) == argmax(logits);
  }

  std::optional<BaseReader>& reader_;
  std::optional<BaseWriter>& writer_;
  Scores scores_;
};

Scores score_windows(Model& model, const std::vector<int32_t>& text,
                     const std::vector<Window>& windows, Scorer scorer, bool quiet) {
  const size_t vocab = static_cast<size_t>(model.info().vocab_size);
  const int32_t bos = model.info().bos_token;
  const bool starts_with_bos = bos >= 0 && !text.empty() && text.front() == bos;
  Sequence sequence = model.sequence();
  ProgressBar bar("perplexity", quiet);
  for (size_t w = 0; w < windows.size(); ++w) {
    const Window& window = windows[w];
    std::vector<int32_t> tokens(text.begin() + window.begin,
                                text.begin() + window.begin + window.n_tokens);
    const std::vector<int32_t> targets = tokens;
    if (starts_with_bos) tokens.front() = bos;
    sequence.truncate(0);
    const std::span<const int32_t> all(tokens);
    const size_t score_from = static_cast<size_t>(window.score_from);
    sequence.prefill(all.first(score_from), LogitsMode::skip, {}, &interrupted());
    sequence.prefill(
        all.subspan(score_from, all.size() - 1 - score_from), LogitsMode::all,
        [&](int64_t first_position, std::span<const float> rows) {
          for (size_t at = 0; at < rows.size(); at += vocab) {
            const size_t position = static_cast<size_t>(first_position) + at / vocab;
            scorer.add(rows.subspan(at, vocab), targets[position + 1],
                       window.begin + static_cast<int64_t>(position));
          }
        },
        &interrupted());
    bar.update(static_cast<double>(w + 1) / static_cast<double>(windows.size()));
  }
  return scorer.finish();
}

// --save-base must not replace what this run reads.
void check_save_base(const PerplexityFlags& flags) {
  if (flags.save_base.empty()) return;
  require_replaceable(flags.save_base);
  const auto refuse_if_same = [&](const char* what, const std::string& path) {
    std::error_code ignored;
    if (path.empty() || !std::filesystem::equivalent(path, flags.save_base, ignored)) return;
    fail(ErrorCode::usage, "--save-base {} is the same file as {} {}: give another name",
         flags.save_base, what, path);
  };
  refuse_if_same("--base", flags.base);
  refuse_if_same("the text", flags.file);
  refuse_if_same("the model", resolve_model(flags.model.model));
}

int cmd_perplexity(const PerplexityFlags& flags, const Context& context) {
  const CommonFlags& common = context.flags;
  if (flags.stride < 0 || flags.stride > flags.n_ctx - 2) {
    fail(ErrorCode::usage, "--stride {}: expected 1 to ctx - 2 = {}, or 0 for none", flags.stride,
         flags.n_ctx - 2);
  }
  if (flags.max_windows == 0 || flags.max_windows < -1) {
    fail(ErrorCode::usage, "--chunks {}: expected 1 or more, or -1 for all of the text",
         flags.max_windows);
  }
  check_save_base(flags);
  const std::string text = read_text(flags.file);
  OpenOptions options = open_options(flags.model, common);
  options.n_ctx = flags.n_ctx;
  options.max_logits_rows = 32;
  OpenedModel opened = open_model(flags.model.model, std::move(options), common);
  Model& model = opened.model;

  const std::vector<int32_t> tokens = model.tokenize(text);
  const std::vector<Window> windows = windows_of(static_cast<int64_t>(tokens.size()), flags);
  if (windows.empty()) {
    fail(ErrorCode::usage,
         "{} has {} tokens, one window needs {}: give a longer text or a smaller -c", flags.file,
         tokens.size(), flags.n_ctx);
  }
  BaseHeader header;
  header.n_ctx = static_cast<uint32_t>(flags.n_ctx);
  header.vocab_size = model.info().vocab_size;
  header.stride = flags.stride;
  header.n_windows = static_cast<int64_t>(windows.size());
  header.tokens_hash = hash_tokens(
      std::span(tokens).first(static_cast<size_t>(windows.back().begin + windows.back().n_tokens)));

  std::optional<BaseReader> reader;
  std::optional<BaseWriter> writer;
  if (!flags.base.empty()) reader.emplace(flags.base, header);
  if (!flags.save_base.empty()) writer.emplace(flags.save_base, header);
  const int64_t start = measure::now_ns();
  const Scores scores = score_windows(model, tokens, windows, Scorer(reader, writer), common.quiet);
  const double seconds = static_cast<double>(measure::now_ns() - start) * 1e-9;

  const double count = static_cast<double>(scores.nll.size());
  const double nll = measure::mean(scores.nll);
  const double nll_error = measure::sample_stddev(scores.nll) / std::sqrt(count);
  const double perplexity = std::exp(nll);
  report::Table table({{"", report::Align::left}, {"value"}, {"±"}});
  table.add({"perplexity", fmt::format("{:.4f}", perplexity),
             fmt::format("{:.4f}", perplexity * nll_error)});
  table.add({"nats per token", fmt::format("{:.5f}", nll), fmt::format("{:.5f}", nll_error)});
  table.add({"scored tokens", fmt::format("{}", scores.nll.size()), ""});
  table.add({"windows", fmt::format("{}", windows.size()), ""});
  Json summary{{"perplexity", perplexity},
               {"perplexity_stderr", perplexity * nll_error},
               {"nll", report::spread_json(scores.nll)},
               {"scored_tokens", scores.nll.size()},
               {"windows", windows.size()},
               {"ctx", flags.n_ctx},
               {"stride", flags.stride},
               {"activations", flags.model.activations},
               {"seconds", seconds}};
  if (!scores.kl.empty()) {
    const Json kl = report::spread_json(scores.kl);
    const double same = 100 * static_cast<double>(scores.same_top) / count;
    table.add({"mean KL to the base", fmt::format("{:.4e}", kl["mean"].get<double>()),
               fmt::format("{:.1e}", kl["stderr"].get<double>())});
    table.add({"median / p99 / max KL",
               fmt::format("{:.2e} / {:.2e} / {:.2e}", kl["median"].get<double>(),
                           kl["p99"].get<double>(), kl["max"].get<double>()),
               ""});
    table.add({"same top token", fmt::format("{:.2f} %", same), ""});
    summary["kl"] = kl;
    summary["top1_agreement_pct"] = same;
  }
  if (common.json) {
    report::Result document;
    document.command = context.arguments;
    document.machine = report::machine_json(measure::inspect_machine());
    document.samples = {{{"arm", "nll"}, {"values", scores.nll}}};
    if (!scores.kl.empty()) document.samples.push_back({{"arm", "kl"}, {"values", scores.kl}});
    document.summary = std::move(summary);
    write_stdout(dump_json(document.to_json(), 2) + "\n");
  } else {
    write_stdout(table.text(stdout_colour()));
  }
  const double tokens_run = static_cast<double>(windows.size()) * static_cast<double>(flags.n_ctx);
  say(common.quiet, "{:.0f} tokens in {:.1f} s, {:.1f} tok/s", tokens_run, seconds,
      tokens_run / seconds);
  return 0;
}

}  // namespace

RunCommand add_perplexity(CLI::App& app, Context& context) {
  auto flags = std::make_shared<PerplexityFlags>();
  add_model_argument(app, flags->model.model);
  app.add_option("FILE,-f,--file", flags->file, "The text; - is stdin")->required()->type_name("");
  app.add_option("-c,--ctx,--ctx-size,--chunk", flags->n_ctx,
                 "Tokens of a window; the second half of it is scored")
      ->capture_default_str()
      ->check(CLI::Range(8, 1 << 20))
      ->type_name("N");
  app.add_option("--stride", flags->stride,
                 "Begin a window every S tokens and score its last S; 0 = no overlap")
      ->capture_default_str()
      ->type_name("S");
  app.add_option("--chunks", flags->max_windows, "Most windows; -1 = all whole ones of the text")
      ->capture_default_str()
      ->type_name("N");
  app.add_option("--save-base", flags->save_base,
                 "Store the scored logits (f32: 4 bytes x vocabulary x scored tokens)")
      ->type_name("FILE");
  app.add_option("--base", flags->base,
                 "Compare with stored logits: KL divergence, top-1 agreement")
      ->type_name("FILE");
  add_engine_flags(app, flags->model);
  return [flags, &context] { return cmd_perplexity(*flags, context); };
}

}  // namespace fathom::cli
