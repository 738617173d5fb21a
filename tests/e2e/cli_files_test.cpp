// SPDX-License-Identifier: Apache-2.0
// What commands make of files: models by name, hostile text and damaged weights in them, `inspect`
// and `synth`.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <string>

#include "tests/e2e/cli_fixture.hpp"
#include "tests/support/edited_gguf.hpp"

namespace fathom::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST_F(Cli, AMissingModelSaysWhereItLooked) {
  expect_one_line_error(fathom({"run", "nothing", "-p", "a"}), 1,
                        "looked for nothing, " + folder_.string() + "/nothing, " +
                            folder_.string() + "/nothing.gguf");
}

TEST_F(Cli, AModelIsFoundByNameInTheCache) {
  const Finished by_name = fathom({"tokenize", "tiny", "--ids", "-p", "hello"});
  EXPECT_EQ(by_name.status, 0) << by_name.err;
  EXPECT_EQ(by_name.out, fathom({"tokenize", model(), "--ids", "-p", "hello"}).out);
}

// What a file says reaches the terminal escaped: no line break, no control sequence.
TEST_F(Cli, TextOfAFileIsEscaped) {
  const std::string hostile = "x\x1b[31m\ny", shown = "x\\x1b[31m\\x0ay";
  const auto with = [&](std::set<std::string> without, const std::string& key) {
    GgufEdit edit;
    edit.without_keys = std::move(without);
    edit.add_keys = [=](gguf::Writer& writer) { writer.add_string(key, hostile); };
    return edit;
  };
  const EditedGguf architecture(model(), with({"general.architecture"}, "general.architecture"));
  const EditedGguf key(model(), with({}, "llama." + hostile));
  const EditedGguf scaling(model(), with({}, "llama.rope.scaling.type"));
  for (const EditedGguf* file : {&architecture, &key, &scaling}) {
    expect_one_line_error(fathom({"run", file->path(), "-p", "a"}), 1, shown);
    const Finished inspect = fathom({"inspect", file->path()});
    EXPECT_EQ(inspect.status, 0) << inspect.err;
    EXPECT_THAT(inspect.out, AllOf(HasSubstr(shown), Not(HasSubstr("\x1b"))));
    EXPECT_THAT(inspect.out, Not(HasSubstr("[31m\n")));
  }
  const EditedGguf name(model(), with({"general.name"}, "general.name"));
  const Finished bench = fathom({"bench", name.path(), "-p", "0", "-n", "1", "-r", "1", "-q"});
  EXPECT_THAT(bench.out, AllOf(HasSubstr(shown), Not(HasSubstr("\x1b"))));
}

TEST_F(Cli, LogitsThatAreNotFiniteEndWithStatus1) {
  const std::string damaged = folder_ / "nan.gguf", text = folder_ / "nan.txt";
  // f32: rounding to int8 would turn NaN into zero.
  ASSERT_EQ(fathom({"synth", damaged, "--shape", "tiny-llama", "--type", "f32", "-q"}).status, 0);
  {
    const gguf::File file = gguf::File::open(damaged);
    const gguf::TensorInfo* norm = file.find_tensor("output_norm.weight");
    ASSERT_NE(norm, nullptr);
    // Where the file holds these values, which are random and so occur once.
    const auto all = gguf::File::open(damaged).file_bytes();
    std::string text_of_file(all, '\0');
    std::ifstream(damaged, std::ios::binary).read(text_of_file.data(), std::streamoff(all));
    const auto values = file.data(*norm);
    const auto offset = static_cast<std::streamoff>(text_of_file.find(
        std::string_view(reinterpret_cast<const char*>(values.data()), values.size())));
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::fstream bytes(damaged, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(offset);
    bytes.write(reinterpret_cast<const char*>(&nan), sizeof nan);
    std::ofstream words(text);
    for (int i = 0; i < 60; ++i) words << "line " << i << " of a text with some words\n";
  }
  const std::string found = "are not finite";
  expect_one_line_error(fathom({"run", damaged, "-p", "a", "-q"}), 1, "the logits at position ");
  expect_one_line_error(fathom({"run", damaged, "-p", "a", "--temp", "1", "-q"}), 1, found);
  expect_one_line_error(fathom({"perplexity", damaged, text, "-c", "64", "-q"}), 1, found);
  expect_one_line_error(fathom({"bench", damaged, "-p", "0", "-n", "1", "-q"}), 1, found);
  expect_one_line_error(fathom({"bench", damaged, "--profile", "--depths", "16", "-q"}), 1, found);
}

TEST_F(Cli, InspectNamesKernelsAndCacheBytes) {
  const Finished table = fathom({"inspect", model()});
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.out, AllOf(HasSubstr("Q8_0"), HasSubstr("general.architecture"),
                               HasSubstr("a token"), HasSubstr("int8 activations")));
  const Json json = document(fathom({"inspect", model(), "--json", "-ctk", "f32", "-ctv", "f32"}));
  const Json& summary = json["summary"];
  ASSERT_TRUE(summary["servable"].get<bool>());
  const Json& m = summary["model"];
  EXPECT_EQ(summary["cache"]["bytes_per_token"].get<int64_t>(),
            m["n_layers"].get<int64_t>() * m["n_kv_heads"].get<int64_t>() *
                m["head_dim"].get<int64_t>() * 2 * 4);
  for (const Json& tensor : summary["tensors"]) {
    EXPECT_TRUE(tensor["kernel"].is_string()) << dump_json(tensor);
  }
}

TEST_F(Cli, InspectRefusesWhatRunRefuses) {
  struct Case {
    const char* why;
    GgufEdit edit;
  };
  GgufEdit no_pre, no_tensor, wrong_shape, extra, other_type, no_bos, window, large_embedding;
  no_pre.without_keys = {"tokenizer.ggml.pre"};
  no_tensor.without_tensors = {"blk.0.attn_k.weight"};
  wrong_shape.add_tensors = {{"blk.0.attn_norm.weight", {8}}};
  extra.add_tensors = {{"blk.0.surprise.weight", {8}}};
  other_type.without_keys =
      no_bos.without_keys = {"tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id"};
  other_type.add_keys = [](gguf::Writer& writer) {
    writer.add_string("tokenizer.ggml.add_bos_token", "yes");
  };
  no_bos.add_keys = [](gguf::Writer& writer) {
    writer.add_bool("tokenizer.ggml.add_bos_token", true);
  };
  window.add_keys = [](gguf::Writer& writer) {
    writer.add_u32("llama.attention.sliding_window", 64);
  };
  large_embedding.without_keys = {"llama.vocab_size"};
  large_embedding.add_tensors = {{"token_embd.weight", {64, 513}}};
  const Case cases[] = {{"key 'tokenizer.ggml.pre': found none", no_pre},
                        {"'blk.0.attn_k.weight'", no_tensor},
                        {"found shape [8, 1, 1, 1]", wrong_shape},
                        {"it has no place in a llama model", extra},
                        {"tokenizer.ggml.add_bos_token", other_type},
                        {"there is no tokenizer.ggml.bos_token_id", no_bos},
                        {"sliding window of 64", window},
                        {"512 tokens, the embedding table 513", large_embedding}};
  for (const Case& c : cases) {
    const EditedGguf file(model(), c.edit);
    const Finished run = fathom({"run", file.path(), "-p", "a", "-n", "1"});
    expect_one_line_error(run, 1, c.why);
    const Json summary = document(fathom({"inspect", file.path(), "--json"}))["summary"];
    EXPECT_FALSE(summary["servable"].get<bool>()) << c.why;
    ASSERT_TRUE(summary["why"].is_string()) << c.why;
    EXPECT_EQ(run.err, "fathom run: " + summary["why"].get<std::string>() + "\n");
    EXPECT_THAT(fathom({"inspect", file.path()}).out, HasSubstr("cannot be served"));
  }
}

TEST_F(Cli, DoctorSaysWhyItCannotKeepTheBandwidth) {
  const auto doctor = [](const std::string& cache) {
    return run_program({FATHOM_PROGRAM, "doctor", "--json", "-q"},
                       {.in = "", .environment = {"FATHOM_CACHE=" + cache}});
  };
  const auto kept = [](const Json& json) {
    for (const Json& item : json["summary"]["missing"]) {
      if (item["what"].get<std::string>().starts_with("the bandwidth cannot be kept")) return false;
    }
    return true;
  };
  const Json refused = document(doctor(model()));
  EXPECT_FALSE(kept(refused));
  EXPECT_THAT(dump_json(refused), AllOf(HasSubstr(model() + ": Not a directory"),
                                        HasSubstr("set FATHOM_CACHE to a folder")));
  const std::string cache = folder_ / "new" / "cache";
  EXPECT_TRUE(kept(document(doctor(cache))));
  EXPECT_TRUE(fs::exists(cache + "/machine.json"));
}

TEST_F(Cli, SynthReplacesOnlyRegularFiles) {
  const std::string pipe = folder_ / "pipe", subfolder = folder_ / "subfolder";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  fs::create_directories(subfolder);
  for (const std::string& out : {pipe, subfolder}) {
    expect_one_line_error(fathom({"synth", out, "--shape", "tiny-llama"}), 1, out + ": found");
  }
  EXPECT_TRUE(fs::is_fifo(pipe));
  for (const auto& entry : fs::directory_iterator(folder_)) {
    EXPECT_NE(entry.path().extension(), ".partial") << entry.path();
  }
}

}  // namespace
}  // namespace fathom::test
