// SPDX-License-Identifier: Apache-2.0
// The choice of the source, and the child process.
#include "cli/attribute_census.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "cli/interrupt.hpp"
#include "cli/read_ceiling.hpp"
#include "measure/observation_json.hpp"
#include "measure/op_trace.hpp"

namespace fathom::cli {
namespace {

constexpr size_t kMostSteps = 1100;  // of a window, and some

class Pipe {
 public:
  Pipe() {
    if (pipe2(ends_, O_CLOEXEC) != 0) {
      fail(ErrorCode::internal, "no pipe to the process that watches: {}", std::strerror(errno));
    }
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int end(int i) const { return ends_[i]; }
  void close_end(int i) {
    if (ends_[i] >= 0) close(ends_[i]);
    ends_[i] = -1;
  }

 private:
  int ends_[2] = {-1, -1};
};

std::string read_all(int file) {
  std::string text;
  char buffer[65536];
  while (true) {
    const ssize_t n = read(file, buffer, sizeof buffer);
    if (n > 0) {
      text.append(buffer, static_cast<size_t>(n));
    } else if (n == 0 || errno != EINTR) {
      return text;
    }
  }
}

int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

ErrorCode code_of(int status) {
  for (const ErrorCode code :
       {ErrorCode::usage, ErrorCode::unavailable, ErrorCode::untrusted, ErrorCode::cancelled}) {
    if (status == exit_status(code)) return code;
  }
  return ErrorCode::internal;
}

}  // namespace

void require_trace_source(const CommonFlags& common) {
  if (!device_of(common)) return;
  fail(ErrorCode::unavailable,
       "the backend {} cannot trace: its library offers no records of the kernels of a step; "
       "attribute with --backend cpu, or use `fathom bench --profile`",
       common.backend);
}

std::unique_ptr<TraceSource> make_trace_source(const CommonFlags& common, size_t n_ops) {
  require_trace_source(common);
  return std::make_unique<measure::OpTrace>(n_ops * kMostSteps);
}

Json census_json(const CensusResult& result, const std::vector<int64_t>& depths) {
  return {{"header", measure::observation_header(result.observation, depths)},
          {"samples", measure::observation_samples(result.observation, depths)},
          {"shown",
           {measure::trace_step_json(result.observation.lo().shown),
            measure::trace_step_json(result.observation.hi().shown)}},
          {"logits_hash", result.logits_hash}};
}

CensusResult census_from_json(const Json& json) {
  CensusResult result;
  try {
    result.observation = measure::observation_from_json(json.at("header"), json.at("samples"));
    if (result.observation.depths.size() < 2) {
      fail(ErrorCode::internal, "the process that watches saw fewer than two depths");
    }
    result.observation.depths.front().shown = measure::trace_step_from_json(json.at("shown").at(0));
    result.observation.depths.back().shown = measure::trace_step_from_json(json.at("shown").at(1));
    for (size_t i : {size_t{0}, size_t{1}}) {
      result.logits_hash[i] = json.at("logits_hash").at(i).get<uint64_t>();
    }
  } catch (const Json::exception& e) {
    fail(ErrorCode::internal, "the process that watches sent something else: {}", e.what());
  }
  return result;
}

CensusResult census_in_child(const std::vector<std::string>& arguments) {
  std::vector<std::string> words{"/proc/self/exe"};
  words.insert(words.end(), arguments.begin() + 1, arguments.end());
  words.push_back(kCensusChildFlag);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  Pipe out;
  const pid_t pid = fork();
  if (pid < 0) {
    fail(ErrorCode::internal, "the process that watches did not start: {}", std::strerror(errno));
  }
  if (pid == 0) {
    dup2(out.end(1), STDOUT_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  out.close_end(1);
  const std::string text = read_all(out.end(0));
  const int status = wait_for(pid);
  if (interrupted()) fail(ErrorCode::cancelled, "interrupted");
  if (status != 0) {
    fail(code_of(status), "the process that watches the steps ended with status {}", status);
  }
  return census_from_json(parse_json(text, "the records of the process that watches"));
}

}  // namespace fathom::cli
