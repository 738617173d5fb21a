// SPDX-License-Identifier: Apache-2.0
// A backend that is a library: found, loaded, used, its exceptions caught; and each way in which a
// library can fail to be one. Crosses folders: the dummy fills the op table of kernels/.
#include "device/backend_loader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "base/error.hpp"
#include "device/owned.hpp"
#include "kernels/op_table.hpp"

namespace fathom {
namespace {

using testing::HasSubstr;

const Backend& dummy() { return load_backend("dummy", FATHOM_TEST_BACKENDS); }

// The error with which loading fails.
Error load_error(const std::string& name, const std::string& directory = FATHOM_TEST_BACKENDS) {
  try {
    load_backend(name, directory);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "backend " << name << " was loaded";
  return {ErrorCode::internal, ""};
}

TEST(BackendLoader, LoadsTheSameBackendTwice) {
  EXPECT_STREQ(dummy().name, "dummy");
  EXPECT_EQ(dummy().abi, kBackendAbi);
  EXPECT_EQ(&dummy(), &dummy());
}

TEST(BackendLoader, SearchesTheGivenFolderThenTheProgramThenLib) {
  const auto path = backend_search_path("/given");
  ASSERT_EQ(path.size(), 3u);
  EXPECT_EQ(path[0], "/given");
  EXPECT_EQ(path[1], std::filesystem::read_symlink("/proc/self/exe").parent_path());
  EXPECT_THAT(path[2], testing::EndsWith("/fathom"));
  EXPECT_EQ(backend_search_path("").size(), 2u);
}

TEST(BackendLoader, MissingLibraryNamesFileFoldersAndRemedy) {
  const Error error = load_error("absent", "/nonexistent");
  EXPECT_EQ(error.code(), ErrorCode::unavailable);
  EXPECT_EQ(exit_status(error.code()), 3);
  for (const char* part : {"'absent'", "libfathom_absent.so", "/nonexistent", "--backend cpu"}) {
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(BackendLoader, NamesThatCouldLeaveTheFolderAreUsageErrors) {
  for (const char* name : {"", "../dummy", "a/b", "Dummy", "dummy.so"}) {
    EXPECT_EQ(load_error(name).code(), ErrorCode::usage) << name;
  }
}

TEST(BackendLoader, OtherInterfaceIsUnavailable) {
  EXPECT_THAT(load_error("refusesabi").what(),
              HasSubstr("does not speak backend interface " + std::to_string(kBackendAbi)));
  EXPECT_THAT(load_error("otherabi").what(),
              HasSubstr("it speaks " + std::to_string(kBackendAbi + 1)));
  EXPECT_EQ(load_error("otherabi").code(), ErrorCode::unavailable);
}

TEST(BackendLoader, RenamedLibraryIsUnavailable) {
  EXPECT_THAT(load_error("othername").what(), HasSubstr("calls itself 'original'"));
}

TEST(BackendLoader, LibraryWithoutTheSymbolIsUnavailable) {
  const Error error = load_error("nosymbol");
  EXPECT_EQ(error.code(), ErrorCode::unavailable);
  EXPECT_THAT(error.what(), HasSubstr("no symbol fathom_backend"));
}

TEST(BackendLoader, FileThatIsNoLibraryIsUnavailable) {
  const std::string directory = testing::TempDir() + "/fathom_not_a_library";
  std::filesystem::create_directories(directory);
  std::ofstream(directory + "/libfathom_text.so") << "not ELF";
  const Error error = load_error("text", directory);
  EXPECT_EQ(error.code(), ErrorCode::unavailable);
  EXPECT_THAT(error.what(), HasSubstr("libfathom_text.so"));
}

TEST(DummyBackend, RunsAnOpAndItsErrorIsCaughtHere) {
  const std::array<int32_t, 2> token = {7, 11};
  StepState step{};
  step.n_rows = 2;
  step.token = token.data();
  std::array<float, 6> x{};
  EmbedArgs args{};
  args.s.d_model = 3;
  args.step = &step;
  args.x = x.data();
  ExecContext ctx;
  dummy().ops->embed(ctx, args);
  EXPECT_THAT(x, testing::ElementsAre(7, 7, 7, 11, 11, 11));

  try {
    dummy().ops->norm_head(ctx, NormHeadArgs{});
    FAIL() << "the dummy head must throw";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_STREQ(error.what(), "the dummy backend has no head");
  }
}

TEST(DummyBackend, MemoryThatDoesNotFitIsRefusedWithFigures) {
  EXPECT_THROW(make_buffer(*dummy().device, int64_t{1} << 40), Error);
}

class OwnedTest : public testing::Test {
 protected:
  const DeviceApi& api_ = *dummy().device;
};

TEST_F(OwnedTest, CopiesThereAndBackAndCountsEvents) {
  const Stream stream = make_stream(api_);
  const Event start = make_event(api_), stop = make_event(api_);
  const Buffer buffer = make_buffer(api_, 8);
  api_.event_record(start.get(), stream.get());
  const std::array<char, 8> sent = {'f', 'a', 't', 'h', 'o', 'm', '!', '\0'};
  std::array<char, 8> received{};
  api_.copy_to_device(buffer.get().data, sent.data(), 8, stream.get());
  api_.copy_to_host(received.data(), buffer.get().data, 8, stream.get());
  api_.event_record(stop.get(), stream.get());
  api_.stream_synchronize(stream.get());
  EXPECT_EQ(received, sent);
  EXPECT_EQ(api_.event_elapsed_us(start.get(), stop.get()), 2);
}

TEST_F(OwnedTest, GraphReplaysWithTheDataOfTheMoment) {
  const Stream stream = make_stream(api_);
  const Buffer buffer = make_buffer(api_, 4);
  int32_t in = 1, out = 0;
  const Graph graph = capture_graph(api_, stream, [&] {
    api_.copy_to_device(buffer.get().data, &in, 4, stream.get());
    api_.copy_to_host(&out, buffer.get().data, 4, stream.get());
  });
  EXPECT_EQ(out, 0) << "capturing must not run";
  for (in = 1; in < 4; ++in) {
    api_.graph_launch(graph.get(), stream.get());
    EXPECT_EQ(out, in);
  }
}

TEST_F(OwnedTest, CaptureEndsWhenTheBodyThrows) {
  const Stream stream = make_stream(api_);
  EXPECT_THROW(capture_graph(api_, stream, [] { throw std::runtime_error("body"); }),
               std::runtime_error);
  const Buffer buffer = make_buffer(api_, 4);
  int32_t in = 5, out = 0;
  api_.copy_to_device(buffer.get().data, &in, 4, stream.get());
  api_.copy_to_host(&out, buffer.get().data, 4, stream.get());
  EXPECT_EQ(out, 5) << "the stream is still capturing";
}

TEST_F(OwnedTest, MoveLeavesNothingBehind) {
  static_assert(!std::is_copy_constructible_v<Buffer> && !std::is_copy_assignable_v<Buffer>);
  static_assert(!std::is_same_v<Stream, Event> && !std::is_same_v<Event, Graph>);
  Buffer first = make_buffer(api_, 16);
  std::byte* const data = first.get().data;
  Buffer second = std::move(first);
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): that it is empty is the point
  EXPECT_EQ(second.get().data, data);
  second = make_buffer(api_, 32);  // gives the first memory back; ASan sees a leak otherwise
  EXPECT_EQ(second.get().bytes, 32);
  second.reset();
  EXPECT_FALSE(second);
}

}  // namespace
}  // namespace fathom
