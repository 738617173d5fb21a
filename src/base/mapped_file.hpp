// SPDX-License-Identifier: Apache-2.0
// A file mapped read-only. Pages that were read can be given back with drop().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace fathom {

class MappedFile {
 public:
  // Throws Error{bad_file} when the file cannot be opened, is empty or is not a regular file.
  static MappedFile open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

  // Tells the kernel that [offset, offset + length) is not needed again soon: its resident pages
  // stop counting as this process's memory. Reading it later is still right.
  void drop(uint64_t offset, uint64_t length) const;
  // Asks for read-ahead of the range.
  void will_need(uint64_t offset, uint64_t length) const;

 private:
  MappedFile() = default;
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace fathom
