// SPDX-License-Identifier: Apache-2.0
// What the parsers accept, and the usage error or message that they give otherwise.
#include "cli/arguments.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"

namespace fathom::cli {
namespace {

using testing::ElementsAre;

ErrorCode code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.code();
  }
  return ErrorCode::internal;  // none of these calls throws it
}

TEST(Arguments, ListsAndRanges) {
  EXPECT_THAT(parse_number_list("4", "-d"), ElementsAre(4));
  EXPECT_THAT(parse_number_list("0,4096", "-d"), ElementsAre(0, 4096));
  EXPECT_THAT(parse_number_list("1-3", "-t"), ElementsAre(1, 2, 3));
  EXPECT_THAT(parse_number_list("64-256+64", "-d"), ElementsAre(64, 128, 192, 256));
  EXPECT_THAT(parse_number_list("64-600*2,7", "-d"), ElementsAre(64, 128, 256, 512, 7));
  EXPECT_THAT(parse_number_list("1-16777216*16777216", "-d"), ElementsAre(1, 16777216));
  EXPECT_THAT(parse_number_list("16777215-16777216+16777216", "-d"), ElementsAre(16777215));
}

TEST(Arguments, BadListsAreUsageErrors) {
  for (const char* text :
       {"", "a", "1,", "-5", "1-", "5-9+0", "5-9*1", "0-9*2", "1-99999999", "1e3", "16777217",
        "9223372036854775807", "99999999999999999999", "1-9223372036854775807*1000000000"}) {
    EXPECT_EQ(code_of([&] { parse_number_list(text, "-d"); }), ErrorCode::usage) << text;
  }
  EXPECT_EQ(code_of([] { parse_pair("1,2,3", "-pg"); }), ErrorCode::usage);
  EXPECT_EQ(parse_pair("512,128", "-pg"), (std::pair<int64_t, int64_t>{512, 128}));
}

TEST(Arguments, WholeNumbersOf64Bits) {
  EXPECT_EQ(parse_uint64("0"), 0u);
  EXPECT_EQ(parse_uint64("010"), 10u);
  EXPECT_EQ(parse_uint64("18446744073709551615"), UINT64_MAX);
  for (const char* text :
       {"", "-1", "+1", "18446744073709551616", "1e3", "0x10", "1_000", " 1", "1 ", "1.0"}) {
    EXPECT_EQ(parse_uint64(text), std::nullopt) << text;
  }
}

TEST(Arguments, KvTypesMustBeEqual) {
  EXPECT_EQ(parse_kv_types("q8_0", "q8_0"), KvType::q8_0);
  EXPECT_EQ(parse_kv_types("fp8-e4m3", "fp8-e4m3"), KvType::fp8_e4m3);
  EXPECT_EQ(code_of([] { parse_kv_types("f16", "q8_0"); }), ErrorCode::usage);
  EXPECT_EQ(code_of([] { parse_kv_types("q4_0", "q4_0"); }), ErrorCode::usage);
  EXPECT_STREQ(kv_type_name(KvType::bf16), "bf16");
  EXPECT_STREQ(kv_type_name(KvType::fp8_e4m3), "fp8-e4m3");
}

TEST(Arguments, LogitBias) {
  EXPECT_EQ(parse_logit_bias("15043+1.5").token, 15043);
  EXPECT_EQ(parse_logit_bias("15043+1.5").bias, 1.5f);
  EXPECT_EQ(parse_logit_bias("2-inf").bias, -INFINITY);
  for (const char* text : {"", "7", "7+", "+1", "a+1", "7+x", "7+nan", "99999999999+1", "7 +1"}) {
    EXPECT_EQ(code_of([&] { parse_logit_bias(text); }), ErrorCode::usage) << text;
  }
}

TEST(Arguments, ShortFlagsOfSeveralLetters) {
  char ctk[] = "-ctk", type[] = "f16", c[] = "-c", ngl[] = "-ngl";
  char* given[] = {ctk, type, c, ngl};
  EXPECT_THAT(expand_short_flags(given),
              ElementsAre("--cache-type-k", "f16", "-c", "--n-gpu-layers"));
}

std::vector<std::string> expanded(std::vector<std::string> given) {
  std::vector<char*> pointers;
  for (std::string& argument : given) pointers.push_back(argument.data());
  return expand_short_flags(pointers);
}

TEST(Arguments, TextThatLooksLikeAShortFlagStays) {
  for (const char* flag : {"-p", "--prompt", "-f", "--file", "-r", "--stop", "--reverse-prompt",
                           "-m", "-o", "--backend-dir", "--base", "--save-base"}) {
    EXPECT_THAT(expanded({flag, "-fa", "-fa"}), ElementsAre(flag, "-fa", "--flash-attn"));
  }
  EXPECT_THAT(expanded({"-p", "-f", "-ub", "8"}), ElementsAre("-p", "-f", "--ubatch-size", "8"));
  EXPECT_THAT(expanded({"-v", "-fa", "--", "-fa"}), ElementsAre("-v", "--flash-attn", "--", "-fa"));
}

TEST(Arguments, ReadingWhatIsNoFile) {
  EXPECT_EQ(code_of([] { read_text("/nonexistent"); }), ErrorCode::bad_file);
  EXPECT_EQ(code_of([] { read_text("/"); }), ErrorCode::bad_file);
  EXPECT_EQ(read_text("/dev/null"), "");
}

TEST(Arguments, TextHasALimit) {
  EXPECT_EQ(code_of([] { read_text("/dev/zero", 1 << 20); }), ErrorCode::usage);
  const std::string path = testing::TempDir() + "fathom_text_" + std::to_string(getpid());
  std::ofstream(path) << "four";
  EXPECT_EQ(read_text(path, 4), "four");
  EXPECT_EQ(code_of([&] { read_text(path, 3); }), ErrorCode::usage);
  std::filesystem::resize_file(path, text::kMaxTextBytes + 1);
  EXPECT_EQ(code_of([&] { read_text(path); }), ErrorCode::usage);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace fathom::cli
