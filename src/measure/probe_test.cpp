// SPDX-License-Identifier: Apache-2.0
// The instrument against variants whose fault is known: each class of bits, times of known cost,
// and operands that are as cold as they are said to be. And every op of the CPU backend: the same
// bits on all instruction sets and thread counts.
#include "measure/probe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "backends/cpu/cpu_backend.hpp"
#include "base/error.hpp"
#include "base/thread_pool.hpp"
#include "kernels/common/cpu_kernels.hpp"
#include "measure/clock.hpp"
#include "measure/statistics.hpp"

namespace fathom::measure {
namespace {

ProbeInput small_input(int batch = 1, int64_t depth = 40) {
  ProbeInput in;
  in.shape = {"small", 256, 512, 320, 4, 2, 64};
  in.type = DType::q8_0;
  in.size = {batch, depth};
  return in;
}

class Probe : public testing::Test {
 protected:
  ThreadPool one_{1, false}, two_{2, false};
  ProbeDevice device_{cpu_backend(), one_, nullptr};

  ProbeVariant variant(const std::string& name, std::string_view isa = "scalar",
                       ThreadPool* pool = nullptr) {
    ProbeVariant out;
    out.name = name;
    out.ops = cpu_ops();
    out.cpu = &select_cpu_kernels(isa);
    out.pool = pool ? pool : &one_;
    return out;
  }
  ProbeVariant with_attn(const std::string& name, void (*attn)(ExecContext&, const AttnArgs&)) {
    ProbeVariant out = variant(name);
    out.ops.attn = attn;
    return out;
  }
  BitVerdict verdict_of(void (*attn)(ExecContext&, const AttnArgs&)) {
    const std::vector<BitEvidence> evidence =
        probe_bits("attn", small_input(3), {variant("base"), with_attn("faulty", attn)}, device_);
    return classify(evidence[1], evidence[0]);
  }
};

TEST_F(Probe, EveryOpHasTheSameBitsOnAllInstructionSetsAndThreads) {
  std::vector<ProbeVariant> variants{variant("base")};
  for (const CpuKernels* isa : available_cpu_kernels()) {
    variants.push_back(variant(isa->isa, isa->isa));
    variants.push_back(variant(std::string(isa->isa) + " two", isa->isa, &two_));
  }
  for (const char* op : probe_op_names()) {
    for (const DType type : {DType::q8_0, DType::q4_k, DType::f16}) {
      ProbeInput in = small_input(3);
      in.type = type;
      const std::vector<BitEvidence> evidence = probe_bits(op, in, variants, device_);
      for (size_t i = 0; i < variants.size(); ++i) {
        const BitVerdict verdict = classify(evidence[i], evidence[0]);
        EXPECT_EQ(verdict.bit_class, BitClass::free)
            << op << ", " << variants[i].name << ": " << verdict.why;
        ASSERT_EQ(evidence[i].outputs.size(), static_cast<size_t>(kProbeDraws));
        EXPECT_NE(evidence[i].outputs[0], evidence[i].outputs[1]) << op << ": draws are alike";
      }
    }
  }
  EXPECT_THROW(make_probe_op("no_op", small_input(), device_), Error);
}

int64_t last_value(const AttnArgs& args) {
  return int64_t{args.step->n_rows} * args.s.n_heads * args.s.head_dim - 1;
}
void nudge(float& x) { x = std::nextafter(x, 2 * x); }

TEST_F(Probe, EachFaultHasItsClass) {
  EXPECT_EQ(verdict_of(attn_cpu).bit_class, BitClass::free);
  const BitVerdict one_ulp = verdict_of([](ExecContext& ctx, const AttnArgs& args) {
    attn_cpu(ctx, args);
    for (int row = 0; row < args.step->n_rows; ++row)
      nudge(args.out[int64_t{row} * args.s.n_heads * args.s.head_dim + 5]);
  });
  EXPECT_EQ(one_ulp.bit_class, BitClass::different);
  EXPECT_EQ(one_ulp.difference.n_different, 3 * kProbeDraws);
  EXPECT_EQ(one_ulp.difference.max_ulp, 1);
  EXPECT_EQ(verdict_of([](ExecContext& ctx, const AttnArgs& args) {
              attn_cpu(ctx, args);
              if (args.step->n_rows > 1) nudge(args.out[0]);
            }).bit_class,
            BitClass::shape_dependent);
  EXPECT_EQ(verdict_of([](ExecContext& ctx, const AttnArgs& args) {
              static int n_calls = 0;
              attn_cpu(ctx, args);
              if (++n_calls % 7 == 0) nudge(args.out[1]);
            }).bit_class,
            BitClass::nondeterministic);
}

TEST_F(Probe, WhatIsWrongFailsAndSaysWhy) {
  const auto why = [&](void (*attn)(ExecContext&, const AttnArgs&)) {
    const BitVerdict verdict = verdict_of(attn);
    EXPECT_EQ(verdict.bit_class, BitClass::fail);
    return verdict.why;
  };
  using testing::HasSubstr;
  EXPECT_THAT(why([](ExecContext& ctx, const AttnArgs& args) {
                const float before = args.out[last_value(args)];
                attn_cpu(ctx, args);
                args.out[last_value(args)] = before;
              }),
              HasSubstr("1 values were not written"));
  EXPECT_THAT(why([](ExecContext& ctx, const AttnArgs& args) {
                attn_cpu(ctx, args);
                args.out[last_value(args) + 1] = 1;
              }),
              HasSubstr("were written"));
  EXPECT_THAT(why([](ExecContext& ctx, const AttnArgs& args) {
                attn_cpu(ctx, args);
                args.out[-1] = 1;
              }),
              HasSubstr("were written"));
  EXPECT_THAT(why([](ExecContext& ctx, const AttnArgs& args) {
                attn_cpu(ctx, args);
                args.out[7] *= 1.01f;
              }),
              HasSubstr("max error"));
  EXPECT_THAT(why([](ExecContext& ctx, const AttnArgs& args) {
                attn_cpu(ctx, args);
                args.out[7] = NAN;
              }),
              HasSubstr("max error"));
}

void spin_us(double us) {
  const int64_t until = now_ns() + static_cast<int64_t>(1e3 * us);
  while (now_ns() < until) {
  }
}

// A call of known cost against one of twice that, in both kinds of memory.
TEST_F(Probe, TimesOfKnownCostComeOut) {
  const ProbeVariant fast = with_attn("fast", [](ExecContext&, const AttnArgs&) { spin_us(200); });
  const ProbeVariant slow = with_attn("slow", [](ExecContext&, const AttnArgs&) { spin_us(400); });
  ProbeOptions options;
  options.cache_bytes = 1 << 20;
  options.budget_bytes = 1 << 20;
  options.n_rounds = 9;
  const ProbeTimes times = probe_times("attn", small_input(), {fast, slow}, device_, {}, options);
  ASSERT_EQ(times.rounds.arms.size(), 6u) << "two variants and the first again, hot and cold";
  for (const ProbeMemory memory : {ProbeMemory::hot, ProbeMemory::cold}) {
    ASSERT_EQ(times.us(1, memory).size(), 9u);
    EXPECT_GE(*std::ranges::min_element(times.us(0, memory)), 200);
    EXPECT_NEAR(quantile(times.us(1, memory), 0.25) / quantile(times.us(0, memory), 0.25), 2, 0.3);
    EXPECT_NEAR(quantile(times.us(0, memory, true), 0.25) / quantile(times.us(0, memory), 0.25), 1,
                0.15);
  }
  for (const std::vector<int>& order : times.rounds.order) EXPECT_EQ(order.size(), 6u);
}

std::set<const std::byte*> seen_caches;

// Which operands the calls met.
TEST_F(Probe, ColdCallsMeetEachSetOnceAndHotOnesOneSet) {
  const ProbeVariant watching = with_attn(
      "watching", [](ExecContext&, const AttnArgs& args) { seen_caches.insert(args.s.kv.k); });
  ProbeOptions options;
  options.cache_bytes = 1 << 20;
  options.n_rounds = 1;
  const int64_t set_bytes = int64_t{40} * 2 * 2 * 64 * 2 + 2 * 4 * 64 * 4;  // K and V, q and out
  options.budget_bytes = 30 * set_bytes;
  options.memories = {ProbeMemory::cold};
  const ProbeTimes cold = probe_times("attn", small_input(), {watching}, device_, {}, options);
  EXPECT_EQ(cold.rotation.set_bytes, set_bytes);
  EXPECT_EQ(cold.rotation.n_sets, 30);
  EXPECT_TRUE(cold.rotation.is_cold());
  EXPECT_GE(cold.rotation.distinct_bytes, 3 << 20);
  EXPECT_EQ(seen_caches.size(), static_cast<size_t>(cold.cold_launches));
  EXPECT_GT(cold.cold_launches, 10);

  seen_caches.clear();
  options.memories = {ProbeMemory::hot};
  const ProbeTimes hot = probe_times("attn", small_input(), {watching}, device_, {}, options);
  EXPECT_EQ(seen_caches.size(), 1u);
  EXPECT_TRUE(hot.rotation.is_hot());
  ProbeInput large = small_input();
  large.size.depth = 4000;
  EXPECT_FALSE(probe_times("attn", large, {watching}, device_, {}, options).rotation.is_hot());
}

// Two kernels a call, the second of a call overlapping the first of the next.
TraceWindow window_of_calls() {
  const auto record = [](int call, int ordinal, int64_t start, int64_t end) {
    TraceRecord r;
    r.op = "probed";
    r.layer = call;
    r.ordinal = ordinal;
    r.kernel = ordinal == 0 ? "partial" : "combine";
    r.start_ns = start;
    r.end_ns = end;
    return r;
  };
  TraceWindow window;
  window.steps.push_back({{record(0, 0, 1000, 31000), record(0, 1, 32000, 35000),
                           record(1, 0, 34000, 66000), record(1, 1, 66000, 68000)}});
  return window;
}

TEST(KernelTimesOfACall, AreExclusiveAndApart) {
  const std::vector<KernelTimes> times = kernel_times({window_of_calls(), window_of_calls()});
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].kernel, "partial");
  EXPECT_EQ(times[0].us, (std::vector<double>{30, 31, 30, 31}));
  EXPECT_EQ(times[1].kernel, "combine");
  EXPECT_EQ(times[1].us, (std::vector<double>{3, 2, 3, 2}));
}

TEST(KernelTimesOfACall, AreRefusedWhereRecordsAreLost) {
  TraceWindow lost = window_of_calls();
  lost.n_lost = 1;
  EXPECT_THROW(kernel_times({window_of_calls(), lost}), Error);
  TraceWindow invalid = window_of_calls();
  invalid.n_invalid = 1;
  EXPECT_THROW(kernel_times({invalid}), Error);
}

}  // namespace
}  // namespace fathom::measure
