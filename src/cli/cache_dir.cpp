// SPDX-License-Identifier: Apache-2.0
// Finding the directory and a model in it, and machine.json, where the read bandwidths are kept.
#include "cli/cache_dir.hpp"

#include <fmt/format.h>

#include <unistd.h>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "base/json.hpp"
#include "cli/arguments.hpp"

namespace fathom::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPeakFile = "machine.json";
constexpr const char* kPeakSchema = "fathom-machine/1";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored) && !fs::is_directory(path, ignored);
}

// The list of peaks; empty when there is no file or it is not ours.
Json read_peaks() {
  try {
    const Json file = parse_json(read_text(cache_dir() + "/" + kPeakFile), kPeakFile);
    if (file.value("schema", "") == kPeakSchema && file.contains("peaks") &&
        file["peaks"].is_array()) {
      return file["peaks"];
    }
  } catch (const std::exception&) {
    // A damaged cache is a missing one.
  }
  return Json::array();
}

std::optional<MeasuredPeak> peak_of(const Json& entry, const std::string& key) {
  if (!entry.is_object() || entry.value("machine", Json()) != Json(key)) return std::nullopt;
  for (const char* field : {"threads", "median_gbps", "max_gbps"}) {
    if (!entry.contains(field) || !entry[field].is_number()) return std::nullopt;
  }
  const MeasuredPeak peak{entry["threads"].get<int>(), entry["median_gbps"].get<double>(),
                          entry["max_gbps"].get<double>()};
  return peak.median_gbps > 0 ? std::optional(peak) : std::nullopt;
}

}  // namespace

std::string cache_dir() {
  if (const std::string own = environment("FATHOM_CACHE"); !own.empty()) return own;
  if (const std::string xdg = environment("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/fathom";
  const std::string home = environment("HOME");
  return (home.empty() ? std::string("/tmp") : home + "/.cache") + "/fathom";
}

std::string resolve_model(const std::string& model) {
  if (is_file(model)) return model;
  std::string looked = model;
  if (model.find('/') == std::string::npos) {
    for (const char* suffix : {"", ".gguf"}) {
      const std::string path = cache_dir() + "/" + model + suffix;
      if (is_file(path)) return path;
      looked += ", " + path;
    }
  }
  std::error_code ignored;
  if (fs::is_directory(model, ignored)) {
    fail(ErrorCode::bad_file, "{} is a folder: give the path of a GGUF file in it", model);
  }
  fail(ErrorCode::bad_file,
       "no model '{}': looked for {}; give the path of a GGUF file or a name in the cache "
       "directory",
       model, looked);
}

std::optional<MeasuredPeak> load_peak(const std::string& key, int threads) {
  std::optional<MeasuredPeak> best;
  for (const Json& entry : read_peaks()) {
    const std::optional<MeasuredPeak> peak = peak_of(entry, key);
    if (!peak) continue;
    if (peak->threads == threads) return peak;
    if (!best || peak->threads > best->threads) best = peak;
  }
  return best;
}

std::string store_peak(const std::string& key, const MeasuredPeak& peak) {
  Json peaks = Json::array();
  for (const Json& entry : read_peaks()) {
    const std::optional<MeasuredPeak> old = peak_of(entry, key);
    if (!old || old->threads != peak.threads) peaks.push_back(entry);
  }
  peaks.push_back({{"machine", key},
                   {"threads", peak.threads},
                   {"median_gbps", peak.median_gbps},
                   {"max_gbps", peak.max_gbps}});
  std::error_code problem, ignored;
  fs::create_directories(cache_dir(), problem);
  if (problem) return problem.message();
  const std::string path = cache_dir() + "/" + kPeakFile;
  const std::string temporary = fmt::format("{}.{}", path, getpid());
  errno = 0;
  std::ofstream file(temporary);
  file << dump_json(Json{{"schema", kPeakSchema}, {"peaks", peaks}}, 2) << "\n";
  file.close();
  if (!file) problem.assign(errno ? errno : EIO, std::generic_category());
  if (!problem) fs::rename(temporary, path, problem);
  if (!problem) return "";
  fs::remove(temporary, ignored);
  return problem.message();
}

}  // namespace fathom::cli
