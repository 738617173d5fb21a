// SPDX-License-Identifier: Apache-2.0
// A binary is registered as {magic, version, data}; data begins with {magic, version, bytes of the
// header, bytes behind it}, as crt/host_runtime.h and fatbinary_section.h of the toolkit have it.
#include "backends/cuda/kernel_code.hpp"

#include <fatbinary_section.h>
#include <vector_types.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include "base/fnv1a.hpp"

namespace fathom::cuda {
namespace {

constexpr uint32_t kDataMagic = 0xBA55ED50;
struct DataHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;
};

struct Registered {
  std::map<void**, const void*> data;  // of a binary, by its handle
  std::map<std::string, std::vector<const void*>> of_kernel;
};
// Made at the first registration, which may come before other objects of this library are.
Registered& registered() {
  static Registered all;
  return all;
}

void add(Fnv1a& hash, const void* data) {
  DataHeader header{};
  std::memcpy(&header, data, sizeof header);
  if (header.magic != kDataMagic) return;
  const auto* bytes = static_cast<const std::byte*>(data);
  for (const std::byte byte : std::span(bytes, header.header_bytes + header.bytes)) {
    hash.add(static_cast<uint32_t>(byte));
  }
}

}  // namespace

uint64_t kernel_code_hash(const std::string& mangled) {
  const auto found = registered().of_kernel.find(mangled);
  if (found == registered().of_kernel.end()) return 0;
  static std::map<std::string, uint64_t> known;
  const auto [at, is_new] = known.try_emplace(mangled, 0);
  if (!is_new) return at->second;
  Fnv1a hash;
  for (const void* data : found->second) add(hash, data);
  return at->second = hash.value();
}

}  // namespace fathom::cuda

extern "C" {

void** __real___cudaRegisterFatBinary(void* binary);
void** __wrap___cudaRegisterFatBinary(void* binary) {
  void** const handle = __real___cudaRegisterFatBinary(binary);
  const auto& wrapper = *static_cast<const __fatBinC_Wrapper_t*>(binary);
  if (wrapper.magic == FATBINC_MAGIC) fathom::cuda::registered().data[handle] = wrapper.data;
  return handle;
}

void __real___cudaRegisterFunction(void** handle, const char* host, char* device, const char* name,
                                   int thread_limit, uint3* thread, uint3* block, dim3* block_dim,
                                   dim3* grid_dim, int* warp_size);
void __wrap___cudaRegisterFunction(void** handle, const char* host, char* device, const char* name,
                                   int thread_limit, uint3* thread, uint3* block, dim3* block_dim,
                                   dim3* grid_dim, int* warp_size) {
  fathom::cuda::Registered& all = fathom::cuda::registered();
  const auto binary = all.data.find(handle);
  if (binary != all.data.end()) all.of_kernel[name].push_back(binary->second);
  __real___cudaRegisterFunction(handle, host, device, name, thread_limit, thread, block, block_dim,
                                grid_dim, warp_size);
}
}
