// SPDX-License-Identifier: Apache-2.0
// Regions, barriers, the dealing of chunks, exceptions and sleep, with more ranks than cores too.
// Run under the thread sanitizer: plain writes of one phase are read by other ranks in the next.
#include "base/thread_pool.hpp"

#include <gmock/gmock.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"

namespace fathom {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

class Pool : public testing::TestWithParam<int> {
 protected:
  ThreadPool pool_{GetParam(), false};
  std::vector<int> counts_ = std::vector<int>(static_cast<size_t>(GetParam()), 0);
};

TEST_P(Pool, EveryRankRunsARegionOnce) {
  EXPECT_EQ(pool_.size(), GetParam());
  const std::thread::id caller = std::this_thread::get_id();
  bool caller_is_rank_0 = false;
  for (int region = 0; region < 20; ++region) {
    pool_.run([&](Team& team) {
      ++counts_[team.rank];
      EXPECT_EQ(team.size, GetParam());
      if (team.rank == 0) caller_is_rank_0 = std::this_thread::get_id() == caller;
    });
    ASSERT_THAT(counts_, Each(region + 1));
  }
  EXPECT_TRUE(caller_is_rank_0);
}

TEST_P(Pool, ManyShortRegions) {
  for (int region = 0; region < 500; ++region) {
    pool_.run([&](Team& team) { ++counts_[team.rank]; });
  }
  EXPECT_THAT(counts_, Each(500));
}

// Each rank reads what its neighbour wrote before the barrier, and writes again after the next.
TEST_P(Pool, BarrierPublishesEveryWrite) {
  constexpr int kPhases = 50;
  std::vector<int> wrong(counts_.size(), 0);
  pool_.run([&](Team& team) {
    for (int phase = 1; phase <= kPhases; ++phase) {
      counts_[team.rank] = phase;
      team.barrier();
      wrong[team.rank] += counts_[(team.rank + 1) % team.size] != phase;
      team.barrier();
    }
  });
  EXPECT_THAT(wrong, Each(0));
}

// A rank that comes late to a barrier is waited for, though the others have long begun to yield.
TEST_P(Pool, BarrierWaitsForTheLastRank) {
  std::vector<int> seen(counts_.size(), 0);
  bool late = false;
  pool_.run([&](Team& team) {
    if (team.rank == team.size - 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(6));
      late = true;
    }
    team.barrier();
    seen[team.rank] = late;
  });
  EXPECT_THAT(seen, Each(1));
}

TEST_P(Pool, AnExceptionOfAnyRankReachesTheCaller) {
  for (int thrower = 0; thrower < GetParam(); ++thrower) {
    std::string message;
    try {
      pool_.run([&](Team& team) {
        if (team.rank == thrower) throw std::runtime_error("rank " + std::to_string(thrower));
        ++counts_[team.rank];
      });
      ADD_FAILURE() << "rank " << thrower << " threw in vain";
    } catch (const std::runtime_error& e) {
      message = e.what();
    }
    EXPECT_EQ(message, "rank " + std::to_string(thrower));
    pool_.run([&](Team& team) { counts_[team.rank] += team.rank == thrower; });
    ASSERT_THAT(counts_, Each(thrower + 1)) << "the region after it";
  }
}

TEST_P(Pool, OneExceptionOfManyReachesTheCaller) {
  EXPECT_THROW(pool_.run([](Team&) { throw std::runtime_error("all"); }), std::runtime_error);
  pool_.run([&](Team& team) { ++counts_[team.rank]; });
  EXPECT_THAT(counts_, Each(1));
}

// Workers spin, yield and then park; a region finds them in each of these.
TEST_P(Pool, RegionsAfterAnyPause) {
  int regions = 0;
  for (const int pause_us : {0, 20, 100, 1000, 2000, 2100, 2500, 6000, 12000, 6000, 0, 6000}) {
    std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
    pool_.run([&](Team& team) {
      ++counts_[team.rank];
      team.barrier();
    });
    ASSERT_THAT(counts_, Each(++regions)) << "after " << pause_us << " us";
  }
}

// A region of another pool inside a region: its workers park while the outer ones work.
TEST_P(Pool, APoolInsideARegionOfAnother) {
  ThreadPool inner(2, false);
  std::vector<int> inner_counts(2, 0);
  for (int region = 0; region < 3; ++region) {
    pool_.run([&](Team& team) {
      ++counts_[team.rank];
      if (team.rank == 0) inner.run([&](Team& other) { ++inner_counts[other.rank]; });
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(6));
  }
  EXPECT_THAT(counts_, Each(3));
  EXPECT_THAT(inner_counts, Each(3));
}

// Runs `chunks` dry on the pool; how often each of 0..total-1 was dealt.
std::vector<int> dealt(ThreadPool& pool, Chunks& chunks, int64_t total) {
  std::vector<int> times(static_cast<size_t>(total), 0);
  pool.run([&](Team&) {
    for (int64_t begin, end; chunks.next(begin, end);) {
      ASSERT_LT(begin, end);
      ASSERT_LE(end, total);
      for (int64_t i = begin; i < end; ++i) ++times[i];
    }
  });
  return times;
}

constexpr int64_t kTotals[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 63, 100, 1000, 4097};

TEST_P(Pool, ChunksDealEveryIndexOnce) {
  for (const int64_t total : kTotals) {
    for (const int64_t grain : {0, 1, 2, 3, 8, 100, 5000}) {
      Chunks chunks(total, grain);
      ASSERT_THAT(dealt(pool_, chunks, total), Each(1)) << total << " by " << grain;
      int64_t begin, end;
      EXPECT_FALSE(chunks.next(begin, end)) << "dealt dry";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Pool, testing::Values(1, 2, 3, 5),
                         [](const auto& ranks) { return std::to_string(ranks.param); });

TEST(Chunks, RunsOfTheGrainInOrder) {
  Chunks chunks(10, 4);
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (int64_t begin, end; chunks.next(begin, end);) runs.emplace_back(begin, end);
  EXPECT_THAT(runs,
              testing::ElementsAre(testing::Pair(0, 4), testing::Pair(4, 8), testing::Pair(8, 10)));
}

TEST(ThreadPool, PoolsComeAndGo) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(1 + i % 4);
    if (i % 3 == 0) continue;  // never used
    int64_t sum = 0;
    Chunks chunks(100, 7);
    std::vector<int64_t> parts(static_cast<size_t>(pool.size()), 0);
    pool.run([&](Team& team) {
      for (int64_t begin, end; chunks.next(begin, end);) parts[team.rank] += end - begin;
    });
    for (const int64_t part : parts) sum += part;
    ASSERT_EQ(sum, 100);
  }
}

// Stacks of 32 TiB: at most three fit into the address space.
TEST(ThreadPool, SaysHowManyThreadsTheMachineGives) {
  pthread_attr_t usual, huge;
  pthread_attr_init(&huge);
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{32} << 40), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  std::string message;
  ErrorCode code{};
  try {
    ThreadPool pool(16, false);
  } catch (const Error& e) {
    code = e.code();
    message = e.what();
  }
  pthread_setattr_default_np(&usual);
  pthread_attr_destroy(&huge);
  pthread_attr_destroy(&usual);
  EXPECT_EQ(code, ErrorCode::unavailable);
  EXPECT_THAT(message,
              AllOf(HasSubstr("16 threads are wanted"), HasSubstr("gives "), HasSubstr("use -t ")));
}

TEST(ChooseThreads, NoneIsAllCoresAndFarMoreThanCoresAreRefused) {
  const int cpus = ThreadPool::usable_cpus(), most = ThreadPool::max_threads();
  EXPECT_GE(most, 16);
  EXPECT_GE(most, std::min(4 * cpus, 1024));
  EXPECT_EQ(ThreadPool::choose_threads(0), cpus);
  EXPECT_EQ(ThreadPool::choose_threads(1), 1);
  EXPECT_EQ(ThreadPool::choose_threads(most), most);
  for (const int64_t wanted : {int64_t{-1}, most + int64_t{1}, int64_t{1} << 40}) {
    try {
      ThreadPool::choose_threads(wanted);
      ADD_FAILURE() << wanted << " accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage);
      EXPECT_THAT(e.what(), AllOf(HasSubstr("found " + std::to_string(wanted)),
                                  HasSubstr("to " + std::to_string(most) + ":")));
    }
  }
}

}  // namespace
}  // namespace fathom
