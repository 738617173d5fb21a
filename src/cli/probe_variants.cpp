// SPDX-License-Identifier: Apache-2.0
// Variants of a device are looked up among those that its library brings; those of the host are
// made here.
#include "cli/probe_variants.hpp"

#include <algorithm>
#include <charconv>
#include <functional>

#include "backends/cpu/cpu_backend.hpp"
#include "base/error.hpp"
#include "cli/arguments.hpp"
#include "engine/varied_backend.hpp"
#include "kernels/common/cpu_kernels.hpp"

namespace fathom::cli {
namespace {

using measure::Knobs;
using measure::ProbeVariant;

constexpr const char* kProduction = "production";

bool is_host(const Backend& backend) { return &backend == &cpu_backend(); }

std::vector<const OpVariant*> variants_of(const Backend& backend, const std::string& op) {
  std::vector<const OpVariant*> out;
  if (!backend.variants) return out;
  for (const OpVariant& variant : backend.variants()) {
    if (variant.op == op) out.push_back(&variant);
  }
  return out;
}

Knobs knobs_of(const OpVariant& variant) {
  Knobs out;
  for (const OpVariant::Knob& knob : variant.knobs) out[knob.name] = std::to_string(knob.value);
  return out;
}

class Maker {
 public:
  Maker(const Backend& backend, const CommonFlags& common) : backend_(backend) {
    threads_ = ThreadPool::choose_threads(common.threads);
    if (is_host(backend)) {
      isa_ = select_cpu_kernels(common.isa).isa;
    } else if (!common.isa.empty()) {
      fail(ErrorCode::usage, "--isa is for backend cpu; the backend is {}", backend.name);
    }
  }
  ProbeVariant production(std::string name = kProduction) {
    return on_host(std::move(name), isa_, threads_);
  }
  // Knobs isa and threads of the host; those not in `knobs` are the command's.
  ProbeVariant of_host(std::string name, const Knobs& knobs) {
    std::string isa = isa_;
    int threads = threads_;
    for (const auto& [knob, value] : knobs) {
      if (knob == "isa") {
        isa = value;
      } else if (knob == "threads") {
        threads = threads_from(value);
      } else {
        fail(ErrorCode::usage, "no knob '{}': backend cpu has isa and threads", knob);
      }
    }
    return on_host(std::move(name), isa, threads);
  }
  ProbeVariant of_device(const OpVariant& variant) {
    ProbeVariant out = production(variant.name);
    variant.apply(out.ops);
    out.knobs = knobs_of(variant);
    return out;
  }
  Knobs base_of_host() const { return {{"isa", isa_}, {"threads", std::to_string(threads_)}}; }
  std::vector<std::unique_ptr<ThreadPool>> pools() { return std::move(pools_); }

 private:
  ProbeVariant on_host(std::string name, const std::string& isa, int threads) {
    ProbeVariant out;
    out.name = std::move(name);
    out.ops = *backend_.ops;
    out.pool = pool_of(threads);
    if (is_host(backend_)) {
      out.cpu = &select_cpu_kernels(isa);
      out.knobs = {{"isa", isa}, {"threads", std::to_string(threads)}};
    }
    return out;
  }
  static int threads_from(const std::string& text) {
    int value = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (status != std::errc() || end != text.data() + text.size() || value < 1 || value > 1024)
      fail(ErrorCode::usage, "threads: found '{}', expected 1 to 1024", text);
    return ThreadPool::choose_threads(value);
  }
  ThreadPool* pool_of(int threads) {
    for (const auto& pool : pools_) {
      if (pool->size() == threads) return pool.get();
    }
    return pools_.emplace_back(std::make_unique<ThreadPool>(threads)).get();
  }

  const Backend& backend_;
  std::string isa_;
  int threads_;
  std::vector<std::unique_ptr<ThreadPool>> pools_;
};

// "a=1,2" -> {"a", {"1", "2"}}
std::pair<std::string, std::vector<std::string>> parse_knob(const std::string& text) {
  const size_t equals = text.find('=');
  const std::vector<std::string> values = equals == std::string::npos
                                              ? std::vector<std::string>()
                                              : split(text.substr(equals + 1), ',');
  if (equals == 0 || values.empty() || std::ranges::find(values, "") != values.end())
    fail(ErrorCode::usage, "--sweep: found '{}', expected a knob and its values: knob=1,2", text);
  return {text.substr(0, equals), values};
}

// Of each knob of the base the values of the sweep, the base's first.
std::vector<std::pair<std::string, std::vector<std::string>>> axes_of(
    const Knobs& base, const std::vector<std::string>& knobs) {
  std::vector<std::pair<std::string, std::vector<std::string>>> out;
  for (const auto& [name, value] : base) out.push_back({name, {value}});
  for (const std::string& text : knobs) {
    const auto [name, values] = parse_knob(text);
    const auto axis = std::ranges::find(out, name, &decltype(out)::value_type::first);
    if (axis == out.end()) {
      std::string known;
      for (const auto& [knob, value] : base)
        known += fmt::format("{}{}", known.empty() ? "" : ", ", knob);
      fail(ErrorCode::usage, "--sweep: no knob '{}'; there are {}", name, known);
    }
    for (const std::string& value : values) {
      if (std::ranges::find(axis->second, value) == axis->second.end())
        axis->second.push_back(value);
    }
  }
  return out;
}

// Calls visit with every combination, the base's first.
void each_combination(const std::vector<std::pair<std::string, std::vector<std::string>>>& axes,
                      const std::function<void(const Knobs&)>& visit, Knobs chosen = {}) {
  if (chosen.size() == axes.size()) return visit(chosen);
  const auto& [name, values] = axes[chosen.size()];
  for (const std::string& value : values) {
    Knobs next = chosen;
    next[name] = value;
    each_combination(axes, visit, next);
  }
}

// Of a sweep on a device: what is wrong with a value that no variant has.
void check_values(const std::vector<std::pair<std::string, std::vector<std::string>>>& axes,
                  const std::vector<const OpVariant*>& all) {
  for (const auto& [name, values] : axes) {
    for (const std::string& value : values) {
      const auto has = [&](const OpVariant* v) { return knobs_of(*v).at(name) == value; };
      if (std::ranges::none_of(all, has))
        fail(ErrorCode::usage, "--sweep: no variant has {}={}; --list shows them", name, value);
    }
  }
}

}  // namespace

ProbeSet named_variants(const Backend& backend, const std::string& op,
                        const std::vector<std::string>& names, const CommonFlags& common) {
  Maker maker(backend, common);
  ProbeSet out;
  for (const std::string& name : names.empty() ? std::vector<std::string>{kProduction} : names) {
    if (name == kProduction) {
      out.variants.push_back(maker.production());
    } else if (is_host(backend)) {
      Knobs knobs;
      for (const std::string& part : split(name, ',')) {
        const auto [knob, values] = parse_knob(part);
        knobs[knob] = values.front();
      }
      out.variants.push_back(maker.of_host(name, knobs));
    } else {
      const OpVariant& variant = engine::find_variant(backend, name);
      if (variant.op != op)
        fail(ErrorCode::usage, "variant '{}' is of {}, not of {}", name, variant.op, op);
      out.variants.push_back(maker.of_device(variant));
    }
  }
  out.pools = maker.pools();
  return out;
}

ProbeSet swept_variants(const Backend& backend, const std::string& op,
                        const std::vector<std::string>& knobs, const CommonFlags& common) {
  Maker maker(backend, common);
  ProbeSet out;
  const std::vector<const OpVariant*> all = variants_of(backend, op);
  if (!is_host(backend) && all.empty()) {
    fail(ErrorCode::usage, "--sweep: backend {} has no variants of {}", backend.name, op);
  }
  const Knobs base = is_host(backend) ? maker.base_of_host() : knobs_of(*all.front());
  const auto axes = axes_of(base, knobs);
  if (!is_host(backend)) check_values(axes, all);
  each_combination(axes, [&](const Knobs& chosen) {
    if (is_host(backend)) {
      const std::string name =
          fmt::format("isa={},threads={}", chosen.at("isa"), chosen.at("threads"));
      out.variants.push_back(maker.of_host(name, chosen));
      return;
    }
    for (const OpVariant* variant : all) {  // not every combination is built
      if (knobs_of(*variant) == chosen) out.variants.push_back(maker.of_device(*variant));
    }
  });
  out.pools = maker.pools();
  return out;
}

std::vector<std::string> variant_names(const Backend& backend, const std::string& op) {
  std::vector<std::string> out{kProduction};
  if (is_host(backend)) {
    for (const CpuKernels* isa : available_cpu_kernels())
      out.push_back(fmt::format("isa={},threads=N", isa->isa));
  }
  for (const OpVariant* variant : variants_of(backend, op)) out.push_back(variant->name);
  return out;
}

}  // namespace fathom::cli
