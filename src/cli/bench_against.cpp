// SPDX-License-Identifier: Apache-2.0
// Children with their output in pipes, and the samples that their rows become.
#include "cli/bench_against.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/error.hpp"
#include "cli/interrupt.hpp"
#include "cli/terminal.hpp"
#include "measure/machine_state.hpp"
#include "measure/statistics.hpp"
#include "report/bench_rows.hpp"

extern char** environ;

namespace fathom::cli {
namespace {

constexpr size_t kMostOutput = size_t{64} << 20;
constexpr const char* kSides[] = {"ours", "twin", "baseline"};

class Pipe {
 public:
  Pipe() {
    if (pipe2(ends_.data(), O_CLOEXEC) != 0) fail(ErrorCode::internal, "no pipe is to be had");
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int read_end() const { return ends_[0]; }
  int write_end() const { return ends_[1]; }
  void close_end(int end) {
    if (ends_[static_cast<size_t>(end)] >= 0) close(ends_[static_cast<size_t>(end)]);
    ends_[static_cast<size_t>(end)] = -1;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

struct Finished {
  int status = -1;
  std::string out, err;
};

// A read of what is there; false at the end.
bool drain(int end, std::string& text) {
  char buffer[1 << 16];
  const ssize_t n = read(end, buffer, sizeof buffer);
  if (n <= 0) return n < 0 && errno == EINTR;
  if (text.size() < kMostOutput) text.append(buffer, static_cast<size_t>(n));
  return true;
}

Finished run_child(const std::vector<std::string>& command) {
  Pipe out, err;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out.write_end(), 1);
  posix_spawn_file_actions_adddup2(&actions, err.write_end(), 2);
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int problem = posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (problem != 0) {
    fail(ErrorCode::unavailable, "cannot run {}: {}", command.front(), std::strerror(problem));
  }
  out.close_end(1);
  err.close_end(1);
  Finished finished;
  pollfd streams[2] = {{out.read_end(), POLLIN, 0}, {err.read_end(), POLLIN, 0}};
  std::string* texts[2] = {&finished.out, &finished.err};
  for (int open = 2; open > 0;) {
    poll(streams, 2, -1);
    for (int i = 0; i < 2; ++i) {
      if (streams[i].fd < 0 || !streams[i].revents) continue;
      if (drain(streams[i].fd, *texts[i])) continue;
      streams[i].fd = -1;
      --open;
    }
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  finished.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return finished;
}

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of("\n");
  if (end == std::string::npos) return "it said nothing";
  const size_t begin = text.rfind('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin + 1) + 1);
}

// The rows of one process as samples.
void add_process(Json& samples, const std::string& program,
                 const std::vector<std::string>& arguments, const char* side, int round,
                 size_t place) {
  std::vector<std::string> command{program};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const Finished finished = run_child(command);
  if (interrupted()) fail(ErrorCode::cancelled, "interrupted in round {}", round + 1);
  const bool measured =
      finished.status == 0 || finished.status == exit_status(ErrorCode::untrusted);
  if (!measured) {
    fail(ErrorCode::internal, "{} ended with status {}: {}", program, finished.status,
         last_line(finished.err));
  }
  const Json json = parse_json(finished.out, program);
  const report::Fields rows(json, program + ": rows");
  for (size_t i = 0; i < rows.size(); ++i) {
    const report::BenchRow row = report::bench_row_inputs(rows.at(i));
    const std::vector<double> ns = rows.at(i).at("samples_ns").numbers();
    if (ns.empty()) rows.at(i).at("samples_ns").refuse("at least one sample");
    samples.push_back({{"arm", row.test_name()},
                       {"key", fmt::format("{} {}", i, row.test_name())},
                       {"side", side},
                       {"type_k", row.type_k},
                       {"type_v", row.type_v},
                       {"n_threads", row.n_threads},
                       {"tokens", row.n_seqs * (row.n_prompt + row.n_gen)},
                       {"round", round},
                       {"place", place},
                       {"ns", measure::median(ns)},
                       {"logits_hash", rows.at(i).text_at("logits_hash")},
                       {"exit_status", finished.status}});
  }
}

}  // namespace

std::vector<std::string> child_arguments(const std::vector<std::string>& arguments) {
  static constexpr std::string_view kWithValue[] = {
      "--against",     "--compare",     "-o",         "--output",      "-r",
      "--repetitions", "--stop-within", "--time-cap", "--save-logits", "--check-output"};
  static constexpr std::string_view kAlone[] = {"--json", "-q", "--quiet", "--no-aa"};
  const auto is_one = [](std::string_view word, std::span<const std::string_view> names) {
    return std::find(names.begin(), names.end(), word) != names.end();
  };
  std::vector<std::string> out;
  for (size_t i = 1; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const std::string name = word.substr(0, word.find('='));
    if (is_one(name, kWithValue)) {
      i += name == word;  // its value is the next word, or stands behind the =
    } else if (!is_one(word, kAlone)) {
      out.push_back(word);
    }
  }
  out.insert(out.end(), {"-r", "1", "-o", "json", "-q"});
  return out;
}

report::Result bench_against(const AgainstOptions& options, const Context& context) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::vector<std::string> arguments = child_arguments(context.arguments);
  report::Result document;
  document.command = context.arguments;
  document.machine = report::machine_json(measure::inspect_machine());
  const measure::Nvml nvml;
  const Json before = report::state_json(measure::read_machine_state(nvml));
  measure::Random random(options.seed);
  Json orders = Json::array();
  ProgressBar bar("in turns", context.flags.quiet);
  for (int round = 0; round < options.rounds; ++round) {
    std::array<int, 3> order{0, 1, 2};
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    for (size_t place = 0; place < order.size(); ++place) {
      const int side = order[place];
      add_process(document.samples, side == 2 ? options.program : self, arguments, kSides[side],
                  round, place);
      bar.update((3.0 * round + static_cast<double>(place) + 1) / (3.0 * options.rounds));
    }
    orders.push_back(order);
  }
  bar.clear();
  document.machine["state"] = {{"before", before},
                               {"after", report::state_json(measure::read_machine_state(nvml))}};
  const std::vector<report::RowComparison> compared =
      report::compare_processes(report::Fields(document.samples, "samples"));
  Json rows = Json::array();
  for (const report::RowComparison& row : compared) rows.push_back(row.json());
  document.gates = report::process_gates(compared);
  document.summary = {
      {"seed", options.seed},
      {"orders", orders},
      {"sides", {"ours", "twin", "baseline"}},
      {"against", {{"program", options.program}, {"paired", true}, {"rows", rows}}}};
  return document;
}

}  // namespace fathom::cli
