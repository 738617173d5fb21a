// SPDX-License-Identifier: Apache-2.0
// A backend library for tests: its device memory is host memory, an event's time is the number of
// copies before it, a graph is a list of copies, `embed` writes token ids, `norm_head` throws.
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "device/backend.hpp"
#include "kernels/op_table.hpp"

namespace fathom {
namespace {

struct Copy {
  void* to;
  const void* from;
  int64_t bytes;
};
struct DummyStream {
  int64_t n_copies = 0;
  bool capturing = false;
  std::vector<Copy> captured;
};
struct DummyEvent {
  int64_t n_copies = 0;
};
struct DummyGraph {
  std::vector<Copy> copies;
};

constexpr int64_t kMemoryBytes = 1 << 20;

DummyStream& stream_of(void* stream) { return *static_cast<DummyStream*>(stream); }

void copy(void* to, const void* from, int64_t bytes, void* stream) {
  DummyStream& s = stream_of(stream);
  if (s.capturing) {
    s.captured.push_back({to, from, bytes});
    return;
  }
  std::memcpy(to, from, static_cast<size_t>(bytes));
  ++s.n_copies;
}

constexpr DeviceApi kDevice = {
    .shares_host_memory = false,
    .info =
        [] {
          return DeviceInfo{.name = "dummy",
                            .isa = "none",
                            .compute_units = 1,
                            .total_bytes = kMemoryBytes,
                            .free_bytes = kMemoryBytes,
                            .l2_bytes = 0};
        },
    .alloc = [](int64_t bytes) -> void* {
      if (bytes > kMemoryBytes) {
        fail(ErrorCode::out_of_memory, "the dummy device has {} bytes, {} were asked for",
             kMemoryBytes, bytes);
      }
      return std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64));
    },
    .free = [](void* data, int64_t) { std::free(data); },
    .alloc_host = [](int64_t bytes) { return std::malloc(static_cast<size_t>(bytes)); },
    .free_host = [](void* data, int64_t) { std::free(data); },
    .copy_to_device = copy,
    .copy_to_host = copy,
    .stream_create = []() -> void* { return new DummyStream; },
    .stream_destroy = [](void* stream) { delete static_cast<DummyStream*>(stream); },
    .stream_synchronize = [](void*) {},
    .event_create = []() -> void* { return new DummyEvent; },
    .event_destroy = [](void* event) { delete static_cast<DummyEvent*>(event); },
    .event_record =
        [](void* event, void* stream) {
          static_cast<DummyEvent*>(event)->n_copies = stream_of(stream).n_copies;
        },
    .event_synchronize = [](void*) {},
    .event_elapsed_us =
        [](void* start, void* stop) {
          return static_cast<double>(static_cast<DummyEvent*>(stop)->n_copies -
                                     static_cast<DummyEvent*>(start)->n_copies);
        },
    .capture_begin = [](void* stream) { stream_of(stream).capturing = true; },
    .capture_end = [](void* stream) -> void* {
      DummyStream& s = stream_of(stream);
      s.capturing = false;
      return new DummyGraph{std::exchange(s.captured, {})};
    },
    .graph_launch =
        [](void* graph, void* stream) {
          for (const Copy& c : static_cast<DummyGraph*>(graph)->copies) {
            copy(c.to, c.from, c.bytes, stream);
          }
        },
    .graph_destroy = [](void* graph) { delete static_cast<DummyGraph*>(graph); },
};

const OpTable& ops() {
  static const OpTable table = [] {
    OpTable t{};
    t.embed = [](ExecContext&, const EmbedArgs& args) {
      for (int32_t row = 0; row < args.step->n_rows; ++row) {
        for (int64_t col = 0; col < args.s.d_model; ++col) {
          args.x[row * args.s.d_model + col] = static_cast<float>(args.step->token[row]);
        }
      }
    };
    t.norm_head = [](ExecContext&, const NormHeadArgs&) {
      fail(ErrorCode::unsupported, "the dummy backend has no head");
    };
    return t;
  }();
  return table;
}

}  // namespace
}  // namespace fathom

extern "C" const fathom::Backend* fathom_backend(uint32_t abi) {
  using namespace fathom;
  if (abi != kBackendAbi) return nullptr;
  static const Backend backend = [] {
    Backend b{};
    b.abi = kBackendAbi;
    b.name = "dummy";
    b.build_id = "tests";
    b.ops = &ops();
    b.device = &kDevice;
    return b;
  }();
  return &backend;
}
