// SPDX-License-Identifier: Apache-2.0
// The one exception type of Fathom. A message says what was found, what was expected and what to
// do.
#pragma once

#include <stdexcept>
#include <string>

namespace fathom {

enum class ErrorCode {
  usage,          // a wrong flag or argument
  bad_file,       // a file that is damaged or hostile
  unsupported,    // a well-formed input that this build has no code for
  device_fault,   // the device reported an error
  internal,       // a broken invariant of ours
  unavailable,    // this machine lacks what was asked for
  out_of_memory,  // the plan does not fit this machine
  untrusted,      // measured, but a gate failed
  cancelled,      // interrupted
};

// Exit status of a program that ends with this error: 1, 2, 3, 4 or 130.
constexpr int exit_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::usage:
      return 2;
    case ErrorCode::unavailable:
    case ErrorCode::out_of_memory:
      return 3;
    case ErrorCode::untrusted:
      return 4;
    case ErrorCode::cancelled:
      return 130;
    default:
      return 1;
  }
}

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace fathom
