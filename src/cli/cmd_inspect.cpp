// SPDX-License-Identifier: Apache-2.0
// fathom inspect: metadata, tensors, cache layout and bytes per token of a GGUF file, and which
// kernel would serve each tensor. Reads the directory of the file, never its weights; a file that
// cannot be served is shown all the same, with the reason.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "backends/cpu/cpu_backend.hpp"
#include "base/error.hpp"
#include "base/utf8.hpp"
#include "cache/gqa/gqa_cache.hpp"
#include "cli/arguments.hpp"
#include "cli/cache_dir.hpp"
#include "cli/command.hpp"
#include "cli/model_flags.hpp"
#include "cli/terminal.hpp"
#include "engine/bind_model.hpp"
#include "engine/cache_plan.hpp"
#include "gguf/gguf_file.hpp"
#include "kernels/common/cpu_kernels.hpp"
#include "kernels/quant/slow_formats.hpp"
#include "model/file_type.hpp"
#include "model/model_config.hpp"
#include "report/result.hpp"
#include "report/table.hpp"

namespace fathom::cli {
namespace {

using report::Align;
using report::format_bytes;
using report::format_count;

constexpr size_t kShownElements = 4;

struct InspectFlags {
  ModelFlags model;
  bool all = false;
};

// Who would multiply with a tensor.
struct Service {
  std::string kernel;  // "Q4_K tiles, avx2"
  bool slow = false;
  std::string problem;  // why nobody would; then the other fields mean nothing
};

using FindService = std::function<Service(const gguf::TensorInfo&)>;

std::string value_text(const gguf::Value& value);

std::string array_text(const gguf::Value& array) {
  std::string text;
  if (const auto strings = array.strings()) {
    for (size_t i = 0; i < std::min(kShownElements, strings->size()); ++i) {
      text += fmt::format("{}'{}'", i ? ", " : "", printable((*strings)[i], 24));
    }
  } else if (array.element != gguf::ValueType::array) {
    for (uint64_t i = 0; i < std::min<uint64_t>(kShownElements, array.count); ++i) {
      text += (i ? ", " : "") + value_text(array.at(i));
    }
  }
  if (array.count > kShownElements) text += ", ...";
  const char* plural = array.element == gguf::ValueType::string && array.count != 1 ? "s" : "";
  return fmt::format("[{}] ({} {}{})", text, array.count, gguf::value_type_info(array.element).name,
                     plural);
}

std::string value_text(const gguf::Value& value) {
  if (value.is_array()) return array_text(value);
  if (const auto text = value.as_string()) return printable(*text);
  if (const auto truth = value.as_bool()) return *truth ? "true" : "false";
  if (const auto real = value.as_f64()) return fmt::format("{:.6g}", *real);
  if (const auto whole = value.as_i64()) return fmt::format("{}", *whole);
  if (const auto large = value.as_u64()) return fmt::format("{}", *large);
  return value.describe();
}

std::string dims_text(const gguf::TensorInfo& tensor) {
  std::string text;
  for (int d = 0; d < tensor.n_dims; ++d) {
    text += fmt::format("{}{}", d ? " x " : "", tensor.dims[static_cast<size_t>(d)]);
  }
  return text;
}

// Norms and biases are vectors that ops read as f32; everything else is a matrix.
bool is_vector(const gguf::TensorInfo& tensor) { return tensor.n_dims <= 1; }

FindService cpu_service(const std::string& isa, Activations activations) {
  const CpuKernels& kernels = select_cpu_kernels(isa);
  const CpuKernels& scalar = select_cpu_kernels("scalar");
  return [&kernels, &scalar, activations](const gguf::TensorInfo& tensor) -> Service {
    const PackedMatrix plan =
        cpu_backend().plan_matrix(tensor.dtype(), static_cast<int64_t>(tensor.dims[1]),
                                  static_cast<int64_t>(tensor.dims[0]), activations);
    const MatmulFn run = kernels.matmul_of(plan);
    if (!run) {
      return {.kernel = "",
              .slow = false,
              .problem = fmt::format("no {} kernel for {}", kernels.isa,
                                     dtype_info(plan.packed_type).name)};
    }
    const quant::SlowFormat* slow = quant::find_slow_format(kernels.isa, plan.packed_type);
    const bool fallback = &kernels != &scalar && run == scalar.matmul_of(plan);
    return {.kernel = fmt::format(
                "{} {}, {}{}", kernels.isa, dtype_info(plan.packed_type).name,
                takes_float_activations(plan.packed_type) ? "f32 activations" : "int8 activations",
                slow ? fmt::format(", {} % of the read ceiling", slow->pct) : ""),
            .slow = fallback || slow != nullptr,
            .problem = ""};
  };
}

FindService library_service(const Backend& backend, Activations activations) {
  return [&backend, activations](const gguf::TensorInfo& tensor) -> Service {
    const PackedMatrix plan =
        backend.plan_matrix(tensor.dtype(), static_cast<int64_t>(tensor.dims[1]),
                            static_cast<int64_t>(tensor.dims[0]), activations);
    const bool oracle = std::string_view(backend.name) == "reference";
    return {.kernel = fmt::format("{} {}{}", backend.name, dtype_info(plan.packed_type).name,
                                  oracle ? ", one thread, double sums" : ""),
            .slow = oracle,
            .problem = ""};
  };
}

FindService find_service(const Backend& backend, const std::string& isa, Activations activations) {
  if (&backend == &cpu_backend()) return cpu_service(isa, activations);
  return library_service(backend, activations);
}

Service service_of(const gguf::TensorInfo& tensor, const FindService& find) {
  const DTypeLookup type = lookup_dtype(tensor.type_id);
  if (type.status != DTypeStatus::supported) {
    return {.kernel = "",
            .slow = false,
            .problem = fmt::format("type {} ({}) is not supported", tensor.type_id, type.name)};
  }
  if (is_vector(tensor)) return {.kernel = "-", .slow = false, .problem = ""};
  try {
    return find(tensor);
  } catch (const Error& e) {
    return {.kernel = "", .slow = false, .problem = e.what()};
  }
}

const char* type_name(const gguf::TensorInfo& tensor) { return lookup_dtype(tensor.type_id).name; }

std::string service_text(const Service& service) {
  if (!service.problem.empty()) return "none: " + service.problem;
  return service.kernel + (service.slow ? " (slow)" : "");
}

// What the file would need to run, or why it cannot.
struct CachePlan {
  std::string problem;
  ModelConfig config;
  int64_t n_ctx = 0;
  int64_t token_bytes = 0;
  int64_t cache_bytes = 0;
};

// All that Engine::open does before it reads weights and asks for memory.
CachePlan plan_cache(const gguf::File& file, const ModelFlags& flags, const Backend& backend,
                     Activations activations) {
  CachePlan plan;
  try {
    plan.config = read_model_config(file);
    plan.n_ctx = flags.n_ctx ? flags.n_ctx : engine::default_context(plan.config);
    require_context(plan.config, plan.n_ctx);
    OpenOptions options;
    options.kv_type = parse_kv_types(flags.type_k, flags.type_v);
    options.page_tokens = flags.page_tokens;
    const GqaCacheConfig cache = engine::plan_cache(plan.config, plan.n_ctx, options);
    GqaCache::validate(cache);
    // Opened again, because `file` may hold tensors that no model may have.
    const gguf::File strict = gguf::File::open(file.path());
    engine::bind_model(strict, plan.config, backend, activations);
    plan.cache_bytes = GqaCache::planned_bytes(cache);
    plan.token_bytes = GqaCache::geometry(cache).token_bytes() * cache.n_layers;
  } catch (const Error& e) {
    if (e.code() == ErrorCode::usage) throw;
    plan.problem = e.what();
  }
  return plan;
}

std::string summary_text(const gguf::File& file, const CachePlan& plan, const ModelFlags& flags,
                         bool colour) {
  report::Table table({{"file", Align::left}, {"", Align::left}});
  uint64_t n_params = 0;
  for (const gguf::TensorInfo& tensor : file.tensors()) n_params += tensor.n_elems;
  table.add({"path", printable(file.path(), std::string::npos)});
  table.add({"format", fmt::format("GGUF version {}, {} file{}, {}", file.version(),
                                   file.n_shards(), file.n_shards() == 1 ? "" : "s",
                                   format_bytes(static_cast<int64_t>(file.file_bytes())))});
  table.add({"tensors", fmt::format("{}, {} values, {}", file.tensors().size(),
                                    format_count(static_cast<int64_t>(n_params)),
                                    format_bytes(static_cast<int64_t>(file.tensor_bytes())))});
  table.add({"mix", file_type_name(file)});
  if (!plan.problem.empty()) {
    table.add({"cannot be served", printable(plan.problem, std::string::npos)}, report::Paint::bad);
    return table.text(colour);
  }
  const ModelConfig& c = plan.config;
  table.add({"family", c.family->architecture});
  table.add({"shape", fmt::format("{} layers, d_model {}, d_ff {}, {} heads, {} KV heads of {}, "
                                  "vocabulary {}",
                                  c.n_layers, c.d_model, c.d_ff, c.n_heads, c.n_kv_heads,
                                  c.head_dim, c.vocab_size)});
  table.add(
      {"context",
       fmt::format("{} trained{}", c.n_ctx_train,
                   c.sliding_window ? fmt::format(", sliding window {}", c.sliding_window) : "")});
  table.add(
      {"cache", fmt::format("{} keys and values, {} a token ({} layers x {} KV heads x {} x 2)",
                            flags.type_k, format_bytes(plan.token_bytes), c.n_layers, c.n_kv_heads,
                            c.head_dim)});
  table.add({"", fmt::format("{} for {} tokens, {}", format_bytes(plan.cache_bytes), plan.n_ctx,
                             flags.page_tokens ? fmt::format("pages of {}", flags.page_tokens)
                                               : "one page")});
  return table.text(colour);
}

// Tensors of one type that one kernel serves.
report::Table services_table(const gguf::File& file, const FindService& find) {
  struct Group {
    size_t count = 0;
    uint64_t bytes = 0;
    std::string example;
  };
  std::map<std::pair<std::string, std::string>, Group> groups;
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    Group& group = groups[{type_name(tensor), service_text(service_of(tensor, find))}];
    ++group.count;
    group.bytes += tensor.bytes;
    if (group.example.empty()) group.example = printable(tensor.name);
  }
  report::Table table({{"type", Align::left},
                       {"tensors"},
                       {"bytes"},
                       {"served by", Align::left},
                       {"for instance", Align::left}});
  for (const auto& [key, group] : groups) {
    table.add({key.first, fmt::format("{}", group.count),
               format_bytes(static_cast<int64_t>(group.bytes)), key.second, group.example},
              key.second.starts_with("none") ? report::Paint::bad : report::Paint::plain);
  }
  return table;
}

report::Table tensors_table(const gguf::File& file, const FindService& find) {
  report::Table table({{"tensor", Align::left},
                       {"dimensions"},
                       {"type", Align::left},
                       {"bytes"},
                       {"served by", Align::left}});
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    table.add({printable(tensor.name), dims_text(tensor), type_name(tensor),
               fmt::format("{}", tensor.bytes), service_text(service_of(tensor, find))});
  }
  return table;
}

report::Table metadata_table(const gguf::File& file) {
  report::Table table({{"key", Align::left}, {"value", Align::left}});
  for (const gguf::Entry& entry : file.metadata()) {
    table.add({printable(entry.key), value_text(entry.value)});
  }
  return table;
}

Json summary_json(const gguf::File& file, const CachePlan& plan, const FindService& find) {
  Json metadata = Json::object();
  for (const gguf::Entry& entry : file.metadata()) {
    metadata[printable(entry.key)] = value_text(entry.value);
  }
  Json tensors = Json::array();
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    const Service service = service_of(tensor, find);
    Json dims = Json::array();
    for (int d = 0; d < tensor.n_dims; ++d) dims.push_back(tensor.dims[static_cast<size_t>(d)]);
    tensors.push_back({{"name", printable(tensor.name)},
                       {"type", type_name(tensor)},
                       {"dims", dims},
                       {"bytes", tensor.bytes},
                       {"kernel", service.problem.empty() ? Json(service.kernel) : Json(nullptr)},
                       {"slow", service.slow},
                       {"why", service.problem.empty() ? Json(nullptr) : Json(service.problem)}});
  }
  Json out{{"path", file.path()},
           {"version", file.version()},
           {"n_shards", file.n_shards()},
           {"file_bytes", file.file_bytes()},
           {"tensor_bytes", file.tensor_bytes()},
           {"file_type", file_type_name(file)},
           {"servable", plan.problem.empty()},
           {"why", plan.problem.empty() ? Json(nullptr) : Json(plan.problem)}};
  if (plan.problem.empty()) {
    const ModelConfig& c = plan.config;
    out["model"] = {{"family", c.family->architecture},
                    {"n_layers", c.n_layers},
                    {"d_model", c.d_model},
                    {"d_ff", c.d_ff},
                    {"n_heads", c.n_heads},
                    {"n_kv_heads", c.n_kv_heads},
                    {"head_dim", c.head_dim},
                    {"vocab_size", c.vocab_size},
                    {"n_ctx_train", c.n_ctx_train}};
    out["cache"] = {
        {"n_ctx", plan.n_ctx}, {"bytes_per_token", plan.token_bytes}, {"bytes", plan.cache_bytes}};
  }
  out["metadata"] = metadata;
  out["tensors"] = tensors;
  return out;
}

int cmd_inspect(const InspectFlags& flags, const Context& context) {
  const gguf::File file =
      gguf::File::open(resolve_model(flags.model.model), gguf::OpenMode::inspect);
  const Activations activations = parse_activations(flags.model.activations) == ActivationType::f32
                                      ? Activations::f32
                                      : Activations::int8;
  const Backend& backend = engine::select_backend(context.flags.backend, context.flags.backend_dir);
  const FindService find = find_service(backend, context.flags.isa, activations);
  const CachePlan plan = plan_cache(file, flags.model, backend, activations);
  if (context.flags.json) {
    report::Result document;
    document.command = context.arguments;
    document.machine = report::machine_json(measure::inspect_machine());
    document.summary = summary_json(file, plan, find);
    write_stdout(dump_json(document.to_json(), 2) + "\n");
    return 0;
  }
  const bool colour = stdout_colour();
  write_stdout(summary_text(file, plan, flags.model, colour) + "\n" +
               services_table(file, find).text(colour) + "\n" + metadata_table(file).text(colour));
  if (flags.all) write_stdout("\n" + tensors_table(file, find).text(colour));
  return 0;
}

}  // namespace

RunCommand add_inspect(CLI::App& app, Context& context) {
  auto flags = std::make_shared<InspectFlags>();
  add_model_argument(app, flags->model.model);
  app.add_flag("-a,--all,--tensors", flags->all, "Every tensor on a line of its own");
  add_context_flag(app, flags->model.n_ctx);
  add_engine_flags(app, flags->model);
  return [flags, &context] { return cmd_inspect(*flags, context); };
}

}  // namespace fathom::cli
