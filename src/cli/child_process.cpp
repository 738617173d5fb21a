// SPDX-License-Identifier: Apache-2.0
// A pipe, a fork, and the child's end.
#include "cli/child_process.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "cli/interrupt.hpp"

namespace fathom::cli {
namespace {

class Pipe {
 public:
  Pipe() {
    if (pipe2(ends_, O_CLOEXEC) != 0) {
      fail(ErrorCode::internal, "no pipe to a process of our own: {}", std::strerror(errno));
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

ChildResult run_child(const std::vector<std::string>& arguments,
                      const std::vector<std::string>& more) {
  std::vector<std::string> words{"/proc/self/exe"};
  words.insert(words.end(), arguments.begin() + 1, arguments.end());
  words.insert(words.end(), more.begin(), more.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  Pipe out;
  const pid_t pid = fork();
  if (pid < 0) {
    fail(ErrorCode::internal, "a process of our own did not start: {}", std::strerror(errno));
  }
  if (pid == 0) {
    dup2(out.end(1), STDOUT_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  out.close_end(1);
  ChildResult result;
  result.text = read_all(out.end(0));
  result.status = wait_for(pid);
  if (interrupted()) fail(ErrorCode::cancelled, "interrupted");
  return result;
}

void require_success(const ChildResult& result, const std::string& what) {
  if (result.status == 0) return;
  fail(code_of(result.status), "{} ended with status {}", what, result.status);
}

}  // namespace fathom::cli
