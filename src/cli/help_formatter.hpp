// SPDX-License-Identifier: Apache-2.0
// CLI11's help in our words: the flag form of a positional argument refers to it, and a number
// shows its default without the range of its type, which the error of a bad one names.
#pragma once

#include <CLI/CLI.hpp>
#include <regex>
#include <sstream>
#include <string>

namespace fathom::cli {

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    if (is_positional || !option->get_positional()) {
      return CLI::Formatter::make_option(option, is_positional);
    }
    std::stringstream out;
    CLI::detail::format_help(out, make_option_name(option, false),
                             "Another way to give " + option->get_name(true), column_width_);
    return out.str();
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    static const std::regex range(":(INT|UINT) in \\[[^\\]]*\\]");
    return std::regex_replace(CLI::Formatter::make_option_opts(option), range, "");
  }
};

}  // namespace fathom::cli
