// SPDX-License-Identifier: Apache-2.0
// Attention of a decode step on the GPU, as a step of the engine meets it: a graph of launches in
// which the queries of each are the outputs of the one before, over layers whose caches together
// exceed the last-level cache many times. The time of a launch is the slope between a graph of 50
// and one of 200 launches, sampled in turn; a read stream between them is the ceiling.
//   attn_cuda_bench [FILE.json [CACHE [BATCH...]]]     of all cache formats, or of the one named;
//                     of all batches, or of those named ("1 x 1641", "llama 1 x 1641")
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cuda/device_api.hpp"
#include "backends/cuda/read_stream.hpp"
#include "base/error.hpp"
#include "device/owned.hpp"
#include "kernels/attn/attn.hpp"
#include "kernels/common/kv_ref.hpp"

namespace fathom {
namespace {

constexpr int kPageTokens = 64;
constexpr int kShortChain = 50, kLongChain = 200;
constexpr int kSamples = 15;
constexpr int64_t kCeilingBytes = int64_t{1} << 30;

struct Shape {
  const char* name;
  int n_heads, n_kv_heads, head_dim;
};
constexpr Shape kQwen{"qwen2.5-7b", 28, 4, 128}, kLlama{"llama-3.1-8b", 32, 8, 128};

struct Case {
  Shape shape;
  KvFormat format;
  std::vector<int> lengths;  // of the sequences of a batch
  std::string what;
};

std::vector<int> spread(int n, int mean) {  // from half to one and a half of the mean
  std::vector<int> out;
  for (int i = 0; i < n; ++i) out.push_back(mean / 2 + mean * i / std::max(1, n - 1));
  return out;
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const KvFormat format : {KvFormat::f16, KvFormat::q8_0, KvFormat::fp8_e4m3}) {
    for (const int depth : {128, 512, 1641, 4096, 8192, 16384, 32768, 131072})
      out.push_back({kQwen, format, {depth}, fmt::format("1 x {}", depth)});
    for (const int n : {8, 32}) {
      out.push_back({kQwen, format, std::vector<int>(n, 2048), fmt::format("{} x 2048", n)});
      out.push_back({kQwen, format, spread(n, 2048), fmt::format("{} x 1024..3072", n)});
    }
    for (const int depth : {1641, 32768})
      out.push_back({kLlama, format, {depth}, fmt::format("llama 1 x {}", depth)});
  }
  return out;
}

// Keys and values of enough pages for the deepest case twice. 64 random pages repeat.
class Pool {
 public:
  Pool(const KvGeometry& geometry, int n_pages, const DeviceApi& api, void* stream)
      : geometry_(geometry), n_pages_(n_pages) {
    const int64_t bytes = geometry.page_bytes() * n_pages;
    for (const KvPart part : {KvPart::key, KvPart::value}) {
      std::vector<std::byte>& host = part == KvPart::key ? k_ : v_;
      host.resize(static_cast<size_t>(bytes));
      fill(host, part);
      Buffer& device = part == KvPart::key ? device_k_ : device_v_;
      device = make_buffer(api, bytes);
      api.copy_to_device(device.get().data, host.data(), bytes, stream);
      api.stream_synchronize(stream);
    }
  }
  int n_pages() const { return n_pages_; }
  KvLayerView on_host() { return {geometry_, k_.data(), v_.data()}; }
  KvLayerView on_device() const { return {geometry_, device_k_.get().data, device_v_.get().data}; }

 private:
  void fill(std::vector<std::byte>& host, KvPart part) const {
    constexpr int kRandomPages = 64;
    std::mt19937 random(part == KvPart::key ? 1 : 2);
    std::normal_distribution<float> normal;
    std::vector<double> head(static_cast<size_t>(geometry_.head_dim));
    const KvLayerView view{geometry_, host.data(), host.data()};
    for (int32_t page = 0; page < kRandomPages; ++page) {
      for (int token = 0; token < kPageTokens; ++token) {
        for (int kv_head = 0; kv_head < geometry_.n_kv_heads; ++kv_head) {
          for (double& x : head) x = normal(random);
          kv_store_ref(view, part, &page, kv_head, token, head.data());
        }
      }
    }
    const int64_t bytes = geometry_.page_bytes();
    for (int page = kRandomPages; page < n_pages_; ++page)
      std::memcpy(&host[page * bytes], &host[random() % kRandomPages * bytes], bytes);
  }

  KvGeometry geometry_;
  int n_pages_;
  std::vector<std::byte> k_, v_;
  Buffer device_k_, device_v_;
};

// The arguments of a case on the device, and on the host for the check.
class Chain {
 public:
  Chain(const Case& c, Pool& pool, const DeviceApi& api, void* stream)
      : api_(api), stream_(stream), pool_(pool), n_rows_(static_cast<int>(c.lengths.size())) {
    AttnArgs::Static& s = static_;
    s.n_heads = c.shape.n_heads;
    s.n_kv_heads = c.shape.n_kv_heads;
    s.head_dim = c.shape.head_dim;
    s.scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
    s.max_rows = n_rows_;
    s.n_ctx = std::max(32768, *std::ranges::max_element(c.lengths));
    s.kv = pool.on_device();
    for (const int n : c.lengths) {
      pos_.push_back(n - 1);
      slot_.push_back(static_cast<int32_t>(slot_.size()));
      layer_pages_ += (n + kPageTokens - 1) / kPageTokens;
      tokens_ += n;
    }
    max_pages_ = static_cast<int>((s.n_ctx + kPageTokens - 1) / kPageTokens);
    n_layers_ = pool.n_pages() / layer_pages_;
    FATHOM_CHECK(n_layers_ >= 2, "the pool is too small for this case");
    n_layers_ = std::min(n_layers_, kLongChain);
    make_pages(c.lengths);
    make_queries();
    workspace_ = upload(std::vector<std::byte>(
        static_cast<size_t>(std::max<int64_t>(64, workspace_bytes_cuda(s)))));
    counters_ = upload(std::vector<std::byte>(kCounterBytes));
    device_pos_ = upload(pos_);
    device_slot_ = upload(slot_);
    device_pages_ = upload(pages_);
  }

  int64_t kv_bytes() const { return tokens_ * pool_.on_device().geometry.token_bytes(); }
  int64_t rotated_bytes() const { return kv_bytes() * n_layers_; }
  int n_layers() const { return n_layers_; }

  Graph capture(int n) {
    return capture_graph(api_, stream_, [&] {
      for (int i = 0; i < n; ++i) launch(i % n_layers_, i % 2);
    });
  }

  // FNV-1a of the bits of relative_error()'s outputs.
  uint64_t bits() const { return bits_; }
  // ||out - reference|| / ||reference|| of a launch.
  double relative_error() {
    launch(1, 0);
    std::vector<float> got(q_.size()), expected(q_.size());
    api_.copy_to_host(got.data(), device_q_[1].get().data, bytes(got), stream_);
    api_.stream_synchronize(stream_);
    bits_ = 0xcbf29ce484222325;
    for (const float x : got) bits_ = (bits_ ^ std::bit_cast<uint32_t>(x)) * 0x100000001b3;
    AttnArgs::Static s = static_;
    s.kv = pool_.on_host();
    const StepState step = step_of(pos_.data(), slot_.data(), pages_.data(), 1);
    ExecContext host;
    attn_ref(host, {s, &step, q_.data(), expected.data()});
    double error = 0, norm = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      error += std::pow(got[i] - double{expected[i]}, 2);
      norm += std::pow(double{expected[i]}, 2);
    }
    return std::sqrt(error / norm);
  }

 private:
  template <class T>
  static int64_t bytes(const std::vector<T>& x) {
    return static_cast<int64_t>(x.size() * sizeof(T));
  }
  template <class T>
  Buffer upload(const std::vector<T>& x) {
    Buffer out = make_buffer(api_, bytes(x));
    api_.copy_to_device(out.get().data, x.data(), bytes(x), stream_);
    api_.stream_synchronize(stream_);
    return out;
  }
  // Of each layer: a table of the sequences' pages, shuffled over the pool.
  void make_pages(const std::vector<int>& lengths) {
    std::vector<int32_t> order(static_cast<size_t>(pool_.n_pages()));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::ranges::shuffle(order, std::mt19937(3));
    pages_.assign(int64_t{n_layers_} * n_rows_ * max_pages_, 2147480000);
    size_t next = 0;
    for (int layer = 0; layer < n_layers_; ++layer) {
      for (int row = 0; row < n_rows_; ++row) {
        int32_t* to = &pages_[(int64_t{layer} * n_rows_ + row) * max_pages_];
        for (int page = 0; page * kPageTokens < lengths[row]; ++page) to[page] = order[next++];
      }
    }
  }
  void make_queries() {
    std::mt19937 random(4);
    std::normal_distribution<float> normal;
    q_.resize(static_cast<size_t>(n_rows_) * static_.n_heads * static_.head_dim);
    for (float& x : q_) x = normal(random);
    for (Buffer& q : device_q_) q = upload(q_);
  }
  StepState step_of(const int32_t* pos, const int32_t* slot, const int32_t* pages,
                    int layer) const {
    StepState step{};
    step.n_rows = n_rows_;
    step.max_pages = max_pages_;
    step.pos = pos;
    step.slot = slot;
    step.page_table = pages + int64_t{layer} * n_rows_ * max_pages_;
    return step;
  }
  template <class T>
  static T* data(const Buffer& buffer) {
    return reinterpret_cast<T*>(buffer.get().data);
  }
  void launch(int layer, int from) {
    const StepState step = step_of(data<int32_t>(device_pos_), data<int32_t>(device_slot_),
                                   data<int32_t>(device_pages_), layer);
    ExecContext ctx;
    ctx.stream.handle = stream_;
    ctx.workspace = {workspace_.get().data, workspace_.get().bytes};
    ctx.counters = {counters_.get().data, counters_.get().bytes};
    attn_cuda(ctx,
              {static_, &step, data<float>(device_q_[from]), data<float>(device_q_[1 - from])});
  }

  const DeviceApi& api_;
  void* stream_;
  Pool& pool_;
  AttnArgs::Static static_{};
  int n_rows_, n_layers_ = 0, max_pages_ = 0, layer_pages_ = 0;
  int64_t tokens_ = 0;
  uint64_t bits_ = 0;
  std::vector<int32_t> pos_, slot_, pages_;
  std::vector<float> q_;
  Buffer workspace_, counters_, device_pos_, device_slot_, device_pages_, device_q_[2];
};

class Timer {
 public:
  Timer(const DeviceApi& api, void* stream)
      : api_(api), stream_(stream), start_(make_event(api)), stop_(make_event(api)) {}
  template <class Fn>
  double us(const Fn& fn) {
    api_.event_record(start_.get(), stream_);
    fn();
    api_.event_record(stop_.get(), stream_);
    api_.stream_synchronize(stream_);
    return api_.event_elapsed_us(start_.get(), stop_.get());
  }

 private:
  const DeviceApi& api_;
  void* stream_;
  Event start_, stop_;
};

double median(std::vector<double> x) {
  std::ranges::sort(x);
  return x.size() % 2 ? x[x.size() / 2] : 0.5 * (x[x.size() / 2 - 1] + x[x.size() / 2]);
}

struct Row {
  Case c;
  int64_t kv_bytes, rotated_bytes;
  double error;
  uint64_t bits;
  std::vector<double> us, ceiling_gbps;  // samples
};

class Bench {
 public:
  explicit Bench(const DeviceApi& api)
      : api_(api), stream_(make_stream(api)), timer_(api, stream_.get()) {}

  void run(std::string_view cache, std::span<const char* const> batches) {
    const int64_t sum = 0;
    ceiling_ = make_buffer(api_, kCeilingBytes);
    sum_ = make_buffer(api_, sizeof sum);
    api_.copy_to_device(sum_.get().data, &sum, sizeof sum, stream_.get());
    const std::vector<Case> all = cases();
    fmt::print("{:14} {:8} {:17} {:>9} {:>18} {:>7} {:>9} {:>6} {:>9} {:>16}\n", "shape", "cache",
               "batch", "us", "spread", "TB/s", "ceiling", "share", "error", "bits");
    for (const KvFormat format : {KvFormat::f16, KvFormat::q8_0, KvFormat::fp8_e4m3}) {
      if (!cache.empty() && cache != kv_format_name(format)) continue;
      for (const Shape& shape : {kQwen, kLlama}) {
        std::vector<Case> chosen;
        for (const Case& c : all) {
          const bool named =
              batches.empty() || std::ranges::find(batches, c.what, [](const char* name) {
                                   return std::string_view(name);
                                 }) != batches.end();
          if (c.format == format && std::string_view(c.shape.name) == shape.name && named)
            chosen.push_back(c);
        }
        if (chosen.empty()) continue;
        const KvGeometry geometry{format, shape.n_kv_heads, shape.head_dim, kPageTokens};
        Pool pool(geometry, 4200, api_, stream_.get());
        for (const Case& c : chosen) measure(c, pool);
      }
    }
  }

  void save(const char* file) const {
    const DeviceInfo info = api_.info();
    std::string out = fmt::format(
        "{{\"schema\": \"fathom.attn_bench.v1\", \"device\": \"{}\", \"chain\": [{}, {}], "
        "\"rows\": [",
        info.name, kShortChain, kLongChain);
    for (size_t i = 0; i < rows_.size(); ++i) {
      const Row& r = rows_[i];
      out += fmt::format(
          "{}\n{{\"shape\": \"{}\", \"n_heads\": {}, \"n_kv_heads\": {}, \"head_dim\": {}, "
          "\"cache\": \"{}\", \"batch\": \"{}\", \"kv_bytes\": {}, \"rotated_bytes\": {}, "
          "\"relative_error\": {:.3g}, \"bits\": \"{:016x}\", \"us\": {:.4f}, \"us_samples\": "
          "[{:.4f}], "
          "\"ceiling_gbps_samples\": [{:.1f}]}}",
          i ? "," : "", r.c.shape.name, r.c.shape.n_heads, r.c.shape.n_kv_heads, r.c.shape.head_dim,
          kv_format_name(r.c.format), r.c.what, r.kv_bytes, r.rotated_bytes, r.error, r.bits,
          median(r.us), fmt::join(r.us, ", "), fmt::join(r.ceiling_gbps, ", "));
    }
    out += "\n]}\n";
    std::FILE* to = std::fopen(file, "w");
    FATHOM_CHECK(to != nullptr, "the result file cannot be written");
    std::fputs(out.c_str(), to);
    std::fclose(to);
  }

 private:
  double ceiling_gbps() {
    const double us = timer_.us([&] {
      cuda::read_stream(
          {ceiling_.get().data, kCeilingBytes, reinterpret_cast<uint64_t*>(sum_.get().data)},
          stream_.get());
    });
    return static_cast<double>(kCeilingBytes) / us * 1e-3;
  }

  void measure(const Case& c, Pool& pool) {
    Chain chain(c, pool, api_, stream_.get());
    const double error = chain.relative_error();
    Row row{c, chain.kv_bytes(), chain.rotated_bytes(), error, chain.bits(), {}, {}};
    const Graph few = chain.capture(kShortChain), many = chain.capture(kLongChain);
    const auto time = [&](const Graph& graph) {
      return timer_.us([&] { api_.graph_launch(graph.get(), stream_.get()); });
    };
    for (int i = 0; i < 2; ++i) time(many);  // warm
    for (int i = 0; i < kSamples; ++i) {
      const double short_us = time(few), long_us = time(many);
      row.us.push_back((long_us - short_us) / (kLongChain - kShortChain));
      if (i % 5 == 0) row.ceiling_gbps.push_back(ceiling_gbps());
    }
    const double us = median(row.us), tbps = static_cast<double>(row.kv_bytes) / us * 1e-6;
    const double ceiling = median(row.ceiling_gbps) * 1e-3;
    fmt::print(
        "{:14} {:8} {:17} {:9.2f} {:8.2f}..{:8.2f} {:7.3f} {:9.3f} {:5.1f}% {:9.2g} {:016x}\n",
        c.shape.name, kv_format_name(c.format), c.what, us, *std::ranges::min_element(row.us),
        *std::ranges::max_element(row.us), tbps, ceiling, 100 * tbps / ceiling, row.error,
        row.bits);
    rows_.push_back(std::move(row));
  }

  const DeviceApi& api_;
  Stream stream_;
  Timer timer_;
  Buffer ceiling_, sum_;
  std::vector<Row> rows_;
};

}  // namespace
}  // namespace fathom

int main(int argc, char** argv) {
  using namespace fathom;
  try {
    Bench bench(cuda::device_api());
    const int n_fixed = std::min(argc, 3);
    bench.run(argc > 2 ? argv[2] : "", {argv + n_fixed, argv + argc});
    if (argc > 1) bench.save(argv[1]);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return exit_status(error.code());
  }
  return 0;
}
