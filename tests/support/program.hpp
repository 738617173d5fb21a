// SPDX-License-Identifier: Apache-2.0
// Runs a program with its streams apart: exit status, stdout and stderr as a script would see them.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace fathom::test {

struct Finished {
  int status = -1;  // exit status, or 128 + signal
  std::string out, err;
};

struct RunOptions {
  std::string in;                                // what stdin gives
  std::vector<std::string> environment;          // NAME=VALUE, added to a small fixed one
  int interrupts = 0;                            // SIGINTs sent once something is on stdout
  bool close_stdout_early = false;               // the reader goes away after the first bytes
  std::chrono::milliseconds interrupt_after{0};  // one SIGINT then, whatever is on stdout
  bool stall_stdout = false;                     // nobody reads stdout while the program lives
  uint64_t file_size_limit = 0;                  // RLIMIT_FSIZE, bytes; 0 = none
  uint64_t address_space_limit = 0;              // RLIMIT_AS, bytes; 0 = none
  std::chrono::seconds timeout{120};             // killed then
};

namespace detail {

inline void child(const std::vector<std::string>& command, const RunOptions& options, int in,
                  int out, int err) {
  dup2(in, 0);
  dup2(out, 1);
  dup2(err, 2);
  const auto set_limit = [](auto resource, uint64_t bytes) {
    const rlimit limit{bytes, bytes};
    if (bytes > 0) setrlimit(resource, &limit);
  };
  set_limit(RLIMIT_FSIZE, options.file_size_limit);
  set_limit(RLIMIT_AS, options.address_space_limit);
  std::vector<std::string> environment{"PATH=/usr/bin:/bin", "TERM=xterm", "LC_ALL=C.UTF-8"};
  environment.insert(environment.end(), options.environment.begin(), options.environment.end());
  std::vector<char*> argv, envp;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  for (const std::string& word : environment) envp.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  execve(argv[0], argv.data(), envp.data());
  _exit(127);
}

}  // namespace detail

inline Finished run_program(const std::vector<std::string>& command,
                            const RunOptions& options = {}) {
  int in[2], out[2], err[2];
  if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)) return {};
  const pid_t pid = fork();
  if (pid == 0) detail::child(command, options, in[0], out[1], err[1]);
  close(in[0]);
  close(out[1]);
  close(err[1]);
  signal(SIGPIPE, SIG_IGN);
  for (size_t at = 0; at < options.in.size();) {
    const ssize_t n = write(in[1], options.in.data() + at, options.in.size() - at);
    if (n <= 0) break;
    at += static_cast<size_t>(n);
  }
  close(in[1]);

  Finished finished;
  const auto start = std::chrono::steady_clock::now();
  const auto deadline = start + options.timeout;
  bool timer_pending = options.interrupt_after.count() > 0;
  int to_send = options.interrupts;
  pollfd streams[2] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
  std::string* texts[2] = {&finished.out, &finished.err};
  for (int open = 2; open > 0;) {
    if (std::chrono::steady_clock::now() > deadline) {
      kill(pid, SIGKILL);
      break;
    }
    if (timer_pending && std::chrono::steady_clock::now() > start + options.interrupt_after) {
      kill(pid, SIGINT);
      timer_pending = false;
    }
    const bool stalled = options.stall_stdout && streams[1].fd >= 0;
    poll(streams + (stalled ? 1 : 0), stalled ? 1 : 2, 100);
    for (int i = stalled ? 1 : 0; i < 2; ++i) {
      if (streams[i].fd < 0 || !streams[i].revents) continue;
      char buffer[4096];
      const ssize_t n = read(streams[i].fd, buffer, sizeof buffer);
      if (n > 0) texts[i]->append(buffer, static_cast<size_t>(n));
      if (n <= 0 || (i == 0 && options.close_stdout_early)) {
        close(streams[i].fd);
        streams[i].fd = -1;
        --open;
      }
    }
    if (!finished.out.empty()) {
      for (; to_send > 0; --to_send) kill(pid, SIGINT);
    }
  }
  for (const pollfd& stream : streams) {
    if (stream.fd >= 0) close(stream.fd);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  finished.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return finished;
}

}  // namespace fathom::test
