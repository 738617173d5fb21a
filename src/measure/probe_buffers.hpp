// SPDX-License-Identifier: Apache-2.0
// What the probed ops share: arrays on the device, outputs between canaries, the arrays of a step,
// matrices in as many sets as a rotation needs.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/quant/cases.hpp"
#include "measure/bitwise.hpp"
#include "measure/probe_op.hpp"

namespace fathom::measure {

template <class T>
class ProbeArray {
 public:
  ProbeArray() = default;
  ProbeArray(const ProbeDevice& device, std::span<const T> values)
      : ProbeArray(device, values, 1) {}
  // The values n times, one behind the other.
  ProbeArray(const ProbeDevice& device, std::span<const T> values, int n)
      : n_(static_cast<int64_t>(values.size())),
        buffer_(make_buffer(device.api(), std::max<int64_t>(64, n * stride()))) {
    for (int i = 0; i < n; ++i) {
      device.api().copy_to_device(at(i), values.data(), n_ * static_cast<int64_t>(sizeof(T)),
                                  device.stream);
    }
    device.api().stream_synchronize(device.stream);
  }
  T* get() const { return reinterpret_cast<T*>(buffer_.get().data); }
  T* at(int i) const { return reinterpret_cast<T*>(buffer_.get().data + i * stride()); }

 private:
  int64_t stride() const { return (n_ * static_cast<int64_t>(sizeof(T)) + 255) / 256 * 256; }
  int64_t n_ = 0;
  Buffer buffer_;
};

// Bytes of the device, through page-locked memory, once the stream has done its work.
std::vector<std::byte> download(const ProbeDevice& device, const std::byte* from, int64_t bytes);

// Rows of floats that an op writes, with canaries around them.
class ProbeOutputRows {
 public:
  // With `initial` the op adds to these values.
  ProbeOutputRows(const ProbeDevice& device, int n_rows, int64_t width,
                  std::vector<float> initial = {});
  float* get() const { return reinterpret_cast<float*>(buffer_.get().data + kCanaryBytes); }
  int64_t width() const { return width_; }
  void reset();
  // Of the rows, and a problem where others were written too.
  ProbeOutput read(ProbeRows rows) const;

 private:
  ProbeDevice device_;
  int64_t width_;
  bool has_initial_;
  std::vector<std::byte> bytes_;  // as they are before a run
  Buffer buffer_;
  HostBuffer staging_;
};

// The arrays of a step of one row a sequence, on the host and on the device. Row i is of slot
// first_slot + i.
class ProbeStep {
 public:
  ProbeStep(const ProbeDevice& device, const ProbeSize& size, int first_slot, int max_pages,
            std::vector<int32_t> page_table, std::vector<int32_t> tokens);
  StepState on_device(ProbeRows rows) const;
  StepState on_host(ProbeRows rows) const;

 private:
  StepState state(ProbeRows rows, const int32_t* token, const int32_t* pos, const int32_t* slot,
                  const int32_t* out_row, const int32_t* pages) const;
  int max_pages_;
  std::vector<int32_t> token_, pos_, slot_, out_row_, page_table_;
  ProbeArray<int32_t> device_token_, device_pos_, device_slot_, device_out_row_, device_pages_;
};

// A random matrix: in file layout for the reference, packed for the backend in as many sets as
// wanted.
class ProbeMatrix {
 public:
  ProbeMatrix(const ProbeDevice& device, DType type, int64_t rows, int64_t cols, uint64_t seed);
  void make_sets(int n);
  PackedMatrix at(int set) const;
  PackedMatrix in_file() const;

 private:
  ProbeDevice device_;
  std::vector<std::byte> file_, packed_;
  PackedMatrix plan_;
  ProbeArray<std::byte> sets_;
};

// Magnitude of a draw's activations.
double draw_scale(int draw);
// Values with a heavy tail, of the draw's magnitude.
std::vector<float> draw_activations(int64_t n, int draw, uint64_t seed);
std::vector<float> draw_norm(int64_t n, uint64_t seed);  // around 1

// Empty, or that the relative error in the Euclidean norm is above the bound, or not finite.
std::string relative_error_problem(std::span<const float> got, std::span<const float> expected,
                                   double bound);

StepShape step_shape(const ProbeSize& size);

// The makers of make_probe_op.
std::unique_ptr<ProbeOp> make_probe_attn(const ProbeInput& input, const ProbeDevice& device);
std::unique_ptr<ProbeOp> make_probe_qkv(const ProbeInput& input, const ProbeDevice& device);
std::unique_ptr<ProbeOp> make_probe_out_proj(const ProbeInput& input, const ProbeDevice& device);
std::unique_ptr<ProbeOp> make_probe_gate_up(const ProbeInput& input, const ProbeDevice& device);
std::unique_ptr<ProbeOp> make_probe_down(const ProbeInput& input, const ProbeDevice& device);
std::unique_ptr<ProbeOp> make_probe_head(const ProbeInput& input, const ProbeDevice& device);
std::unique_ptr<ProbeOp> make_probe_embed(const ProbeInput& input, const ProbeDevice& device);
std::unique_ptr<ProbeOp> make_probe_sample(const ProbeInput& input, const ProbeDevice& device);

}  // namespace fathom::measure
