// SPDX-License-Identifier: Apache-2.0
// Demangled, then cut; what is in template arguments is left alone.
#include "report/kernel_name.hpp"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <string_view>

namespace fathom::report {

std::string short_kernel_name(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> plain(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), std::free);
  std::string name = status == 0 ? plain.get() : symbol;
  constexpr std::string_view kUnnamed = "(anonymous namespace)::";
  for (size_t at; (at = name.find(kUnnamed)) != name.npos;) name.erase(at, kUnnamed.size());
  const size_t end = name.find('(');
  const std::string head = name.substr(0, std::min(name.find('<'), end));
  const size_t colons = head.rfind("::"), space = head.rfind(' ');
  const size_t begin = colons != head.npos ? colons + 2 : space != head.npos ? space + 1 : 0;
  return name.substr(begin, end == name.npos ? end : end - begin);
}

}  // namespace fathom::report
