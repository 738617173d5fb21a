// SPDX-License-Identifier: Apache-2.0
// A good GGUF file with some keys and tensors changed, for tests of what a loader refuses.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "gguf/gguf_file.hpp"
#include "gguf/gguf_writer.hpp"

namespace fathom::test {

struct GgufEdit {
  std::set<std::string> without_keys;
  std::function<void(gguf::Writer&)> add_keys;  // of keys removed above, or new ones
  std::set<std::string> without_tensors;
  std::map<std::string, std::vector<uint64_t>> add_tensors;  // F32 zeros; replaces one of that name
  std::map<std::string, std::function<void(std::span<std::byte>)>> change_tensors{};  // their bytes
};

// The file lives as long as this.
class EditedGguf {
 public:
  EditedGguf(const std::string& source, const GgufEdit& edit) {
    static int count = 0;
    path_ =
        "/tmp/fathom_edited_" + std::to_string(getpid()) + "_" + std::to_string(++count) + ".gguf";
    const gguf::File file = gguf::File::open(source);
    gguf::Writer writer(file.alignment());
    for (const gguf::Entry& entry : file.metadata()) {
      const std::string key(entry.key);
      if (!edit.without_keys.contains(key)) writer.add_value(key, entry.value);
    }
    if (edit.add_keys) edit.add_keys(writer);
    std::vector<const gguf::TensorInfo*> kept;
    for (const gguf::TensorInfo& tensor : file.tensors()) {
      const std::string name(tensor.name);
      if (edit.without_tensors.contains(name) || edit.add_tensors.contains(name)) continue;
      kept.push_back(&tensor);
      writer.add_tensor(name, tensor.dtype(), {tensor.dims.data(), size_t(tensor.n_dims)});
    }
    for (const auto& [name, dims] : edit.add_tensors) writer.add_tensor(name, DType::f32, dims);
    writer.begin(path_);
    for (const gguf::TensorInfo* tensor : kept) {
      const auto change = edit.change_tensors.find(std::string(tensor->name));
      if (change == edit.change_tensors.end()) {
        writer.write(file.data(*tensor));
        continue;
      }
      const auto data = file.data(*tensor);
      std::vector<std::byte> changed(data.begin(), data.end());
      change->second(changed);
      writer.write(changed);
    }
    for (const auto& [name, dims] : edit.add_tensors) {
      uint64_t n = 4;
      for (const uint64_t dim : dims) n *= dim;
      writer.write(std::vector<std::byte>(n));
    }
    writer.finish();
  }
  ~EditedGguf() { std::remove(path_.c_str()); }
  EditedGguf(const EditedGguf&) = delete;
  EditedGguf& operator=(const EditedGguf&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace fathom::test
