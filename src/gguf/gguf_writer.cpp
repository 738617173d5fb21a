// SPDX-License-Identifier: Apache-2.0
// The header's bytes, the padding between tensors, and the partial file with its reserved space.
#include "gguf/gguf_writer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/output_file.hpp"
#include "base/utf8.hpp"

namespace fathom::gguf {
namespace {

constexpr uint32_t kVersion = 3;
constexpr size_t kBufferBytes = 1 << 20;
constexpr size_t kMaxNameBytes = 63;
constexpr std::string_view kAlignmentKey = "general.alignment";

template <class T>
void append_raw(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void append_text(std::string& out, std::string_view text) {
  append_raw(out, static_cast<uint64_t>(text.size()));
  out.append(text);
}

}  // namespace

Writer::Writer(uint32_t alignment) : alignment_(alignment) {
  FATHOM_CHECK(alignment >= kMinAlignment && alignment <= kMaxAlignment &&
                   (alignment & (alignment - 1)) == 0,
               "the alignment of a GGUF file is a power of two in 8..65536");
  if (alignment != kDefaultAlignment) add_u32(kAlignmentKey, alignment);
}

Writer::~Writer() { discard(); }

void Writer::put_string(std::string_view text) { append_text(metadata_, text); }

void Writer::put_key(std::string_view key, ValueType type) {
  FATHOM_CHECK(fd_ < 0, "metadata is declared before begin()");
  if (key.empty() || key.size() > kMaxKeyBytes || !is_valid_utf8(key)) {
    fail(ErrorCode::internal, "'{}' is no valid metadata key", printable(key));
  }
  if (!names_.insert(fmt::format("k:{}", key)).second) {
    fail(ErrorCode::internal, "metadata key '{}' was added twice", printable(key));
  }
  put_string(key);
  put(static_cast<uint32_t>(type));
  ++n_keys_;
}

void Writer::add_string(std::string_view key, std::string_view value) {
  put_key(key, ValueType::string);
  put_string(value);
}

void Writer::add_value(std::string_view key, const Value& value) {
  put_key(key, value.type);
  if (value.is_array()) {
    put(static_cast<uint32_t>(value.element));
    put(value.count);
  } else if (value.type == ValueType::string) {
    put(static_cast<uint64_t>(value.payload.size()));
  }
  metadata_.append(reinterpret_cast<const char*>(value.payload.data()), value.payload.size());
}

void Writer::add_tensor(std::string_view name, DType type, std::span<const uint64_t> dims) {
  FATHOM_CHECK(fd_ < 0, "tensors are declared before begin()");
  const DTypeInfo& info = dtype_info(type);
  if (name.empty() || name.size() > kMaxNameBytes || !is_valid_utf8(name)) {
    fail(ErrorCode::internal, "'{}' is no valid tensor name", printable(name));
  }
  if (!names_.insert(fmt::format("t:{}", name)).second) {
    fail(ErrorCode::internal, "tensor '{}' was added twice", name);
  }
  uint64_t n_elems = 1;
  bool valid = !dims.empty() && dims.size() <= kMaxDims;
  for (const uint64_t dim : dims) valid = valid && dim != 0 && checked_mul(n_elems, dim, n_elems);
  if (!valid || dims[0] % static_cast<uint64_t>(info.block_elems) != 0 || n_elems >> 56 != 0) {
    fail(ErrorCode::internal, "tensor '{}' of type {} cannot have the shape [{}]", name, info.name,
         fmt::join(dims, ", "));
  }
  const uint64_t bytes =
      n_elems / static_cast<uint64_t>(info.block_elems) * static_cast<uint64_t>(info.block_bytes);
  const uint64_t offset =
      tensors_.empty() ? 0 : round_up(tensors_.back().offset + tensors_.back().bytes, alignment_);
  tensors_.push_back({std::string(name), type, {dims.begin(), dims.end()}, bytes, offset});
}

std::string Writer::header() const {
  std::string out = "GGUF";
  append_raw(out, kVersion);
  append_raw(out, static_cast<uint64_t>(tensors_.size()));
  append_raw(out, n_keys_);
  out += metadata_;
  for (const Tensor& tensor : tensors_) {
    append_text(out, tensor.name);
    append_raw(out, static_cast<uint32_t>(tensor.dims.size()));
    for (const uint64_t dim : tensor.dims) append_raw(out, dim);
    append_raw(out, static_cast<uint32_t>(tensor.type));
    append_raw(out, tensor.offset);
  }
  if (!tensors_.empty()) out.resize(round_up(out.size(), alignment_), '\0');
  return out;
}

uint64_t Writer::file_bytes() const {
  const uint64_t header_bytes = header().size();
  if (tensors_.empty()) return header_bytes;
  return header_bytes + round_up(tensors_.back().offset + tensors_.back().bytes, alignment_);
}

void Writer::begin(const std::string& path) {
  FATHOM_CHECK(fd_ < 0, "begin() is called once");
  require_replaceable(path);
  path_ = path;
  partial_path_ = partial_name(path);
  fd_ = ::open(partial_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) {
    fail(ErrorCode::bad_file, "{}: cannot create: {}", partial_path_, std::strerror(errno));
  }
  // Asking for all the space now turns a full disk into an error before hours of work. File
  // systems that cannot reserve say so and are written to all the same.
  const uint64_t total_bytes = file_bytes();
  if (fallocate(fd_, 0, 0, static_cast<off_t>(total_bytes)) != 0 &&
      (errno == ENOSPC || errno == EFBIG || errno == EDQUOT)) {
    const int error = errno;
    discard();
    fail(ErrorCode::unavailable, "{}: cannot reserve {} bytes: {}; free some space", path,
         total_bytes, std::strerror(error));
  }
  buffer_ = std::make_unique<std::byte[]>(kBufferBytes);
  const std::string head = header();
  append(std::as_bytes(std::span(head)));
  start_tensor(0);
}

void Writer::start_tensor(size_t index) {
  tensor_ = index;
  tensor_bytes_left_ = index < tensors_.size() ? tensors_[index].bytes : 0;
}

void Writer::write(std::span<const std::byte> bytes) {
  FATHOM_CHECK(fd_ >= 0, "begin() comes before write()");
  if (bytes.size() > tensor_bytes_left_) {
    fail(ErrorCode::internal, "{} bytes of data for {}, which takes {} more", bytes.size(),
         tensor_ < tensors_.size() ? "tensor '" + tensors_[tensor_].name + "'" : "no tensor",
         tensor_bytes_left_);
  }
  if (bytes.empty()) return;
  append(bytes);
  tensor_bytes_left_ -= bytes.size();
  if (tensor_bytes_left_ != 0) return;
  const uint64_t tensor_bytes = tensors_[tensor_].bytes;
  append_zeros(round_up(tensor_bytes, alignment_) - tensor_bytes);
  start_tensor(tensor_ + 1);
}

void Writer::finish() {
  FATHOM_CHECK(fd_ >= 0, "begin() comes before finish()");
  if (tensor_ < tensors_.size()) {
    fail(ErrorCode::internal, "tensor '{}' lacks {} bytes of data", tensors_[tensor_].name,
         tensor_bytes_left_);
  }
  flush();
  const int closed = ::close(std::exchange(fd_, -1));
  if (closed != 0 || std::rename(partial_path_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    discard();
    fail(ErrorCode::bad_file, "{}: cannot finish the file: {}", path_, std::strerror(error));
  }
  partial_path_.clear();
}

void Writer::append(std::span<const std::byte> bytes) {
  if (bytes.size() > kBufferBytes - buffered_bytes_) flush();
  if (bytes.size() >= kBufferBytes) {
    write_through(bytes);
    return;
  }
  std::memcpy(buffer_.get() + buffered_bytes_, bytes.data(), bytes.size());
  buffered_bytes_ += bytes.size();
}

void Writer::append_zeros(uint64_t n) {
  static constexpr std::byte kZeros[kMaxAlignment] = {};
  append(std::span(kZeros).first(n));
}

void Writer::flush() { write_through({buffer_.get(), std::exchange(buffered_bytes_, 0)}); }

void Writer::write_through(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int error = n < 0 ? errno : ENOSPC;
      discard();
      fail(ErrorCode::unavailable, "{}: cannot write {} bytes at offset {}: {}", path_,
           bytes.size(), written_bytes_, std::strerror(error));
    }
    written_bytes_ += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void Writer::discard() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  if (!partial_path_.empty()) ::unlink(partial_path_.c_str());
  partial_path_.clear();
}

}  // namespace fathom::gguf
