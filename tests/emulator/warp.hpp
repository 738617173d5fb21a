// SPDX-License-Identifier: Apache-2.0
// Instructions that the lanes of a warp execute together.
#pragma once

#include <cstring>
#include <new>
#include <string>
#include <type_traits>

#include "emulator/block.hpp"

namespace fathom::emulator {

// What the lanes gave, and what they get.
template <class In, class Out>
struct Lanes {
  const In* in[kWarpSize];
  Out* out[kWarpSize];
};

// The last lane to arrive computes for all: compute(const Lanes<In, Out>&). REQUIRES: all lanes of
// the warp are at the same instruction.
template <class Out, class In, class Compute>
Out together(const char* instruction, const In& in, const Compute& compute) {
  static_assert(std::is_trivially_copyable_v<In> && sizeof(In) <= WarpExchange::kMaxIn);
  static_assert(std::is_trivially_copyable_v<Out> && sizeof(Out) <= WarpExchange::kMaxOut);
  WarpExchange& warp = this_warp();
  Barrier& barrier = warp.barrier;
  const int lane = this_thread().index % kWarpSize;
  if (barrier.arrived() == 0) warp.instruction = instruction;
  if (warp.instruction != instruction && std::strcmp(warp.instruction, instruction) != 0) {
    fail_kernel(std::string("lanes of a warp are at ") + warp.instruction + " and " + instruction);
  }
  const unsigned generation = barrier.generation();
  auto& given = warp.in[generation % 2];
  auto& taken = warp.out[generation % 2];
  std::memcpy(given[lane], &in, sizeof in);
  if (barrier.arrive(lane, kWarpSize)) {
    Lanes<In, Out> lanes;
    for (int i = 0; i < kWarpSize; ++i) {
      lanes.in[i] = reinterpret_cast<const In*>(given[i]);
      lanes.out[i] = new (taken[i]) Out;
    }
    compute(lanes);
  } else {
    wait_for(barrier, generation, instruction);
  }
  Out out;
  std::memcpy(&out, taken[lane], sizeof out);
  return out;
}

struct Nothing {};
inline void sync_warp() {
  together<Nothing>("__syncwarp", Nothing{}, [](const auto&) {});
}

inline void check_mask(unsigned mask) {
  if (mask != 0xffffffffu) fail_kernel("the emulator knows only the full mask of a warp");
}

// source(lane): the lane whose value a lane gets.
template <class T, class Source>
T shuffle(const char* instruction, unsigned mask, T value, const Source& source) {
  check_mask(mask);
  struct Given {
    T value;
    int from;
  };
  const Given given{value, source(this_thread().index % kWarpSize)};
  return together<T>(instruction, given, [](const Lanes<Given, T>& lanes) {
    for (int i = 0; i < kWarpSize; ++i) *lanes.out[i] = lanes.in[lanes.in[i]->from]->value;
  });
}

}  // namespace fathom::emulator
