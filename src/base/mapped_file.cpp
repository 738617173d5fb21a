// SPDX-License-Identifier: Apache-2.0
// The mapping by open, mmap and madvise, with the system's reason in every error.
#include "base/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace fathom {

MappedFile MappedFile::open(const std::string& path) {
  // Not blocking: a FIFO without a writer is to be refused, not waited for.
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail(ErrorCode::bad_file, "{}: cannot open: {}", path, std::strerror(errno));
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    fail(ErrorCode::bad_file, "{}: not a regular file", path);
  }
  if (info.st_size == 0) {
    ::close(fd);
    fail(ErrorCode::bad_file, "{}: the file is empty", path);
  }
  void* data = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  ::close(fd);
  if (data == MAP_FAILED) {
    fail(error == ENOMEM ? ErrorCode::out_of_memory : ErrorCode::bad_file,
         "{}: cannot map {} bytes: {}", path, info.st_size, std::strerror(error));
  }
  MappedFile file;
  file.path_ = path;
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = static_cast<size_t>(info.st_size);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) munmap(const_cast<std::byte*>(data_), size_);
}

namespace {
void advise(const std::byte* data, size_t size, uint64_t offset, uint64_t length, int advice) {
  constexpr uint64_t kPage = 4096;
  if (offset >= size) return;
  const uint64_t end = length < size - offset ? offset + length : size;
  const uint64_t begin = offset / kPage * kPage;
  madvise(const_cast<std::byte*>(data) + begin, end - begin, advice);
}
}  // namespace

void MappedFile::drop(uint64_t offset, uint64_t length) const {
  advise(data_, size_, offset, length, MADV_DONTNEED);
}

void MappedFile::will_need(uint64_t offset, uint64_t length) const {
  advise(data_, size_, offset, length, MADV_WILLNEED);
}

}  // namespace fathom
