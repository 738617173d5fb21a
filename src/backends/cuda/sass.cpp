// SPDX-License-Identifier: Apache-2.0
// Bits of an instruction: 0-11 opcode, 12-15 predicate, 110-112 write barrier, 113-115 read
// barrier, 116-121 wait mask; of a branch 34-81 the distance, with eight low bits in 16-23 from
// sm_90 on (zero before). Layout after Jia et al., arXiv 1804.06826; held by sass_test.cpp.
#include "backends/cuda/sass.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <string_view>

#include "base/error.hpp"

namespace fathom::cuda {
namespace {

constexpr int kBra = 0x947, kBraUniform = 0x547, kExit = 0x94d;
constexpr int kDepbar = 0x91a, kLdgsts = 0xfae;
constexpr int kNoBarrier = 7;
constexpr std::array kKnownArchitectures = {80, 86, 89, 90, 100, 103, 120, 121};

struct Name {
  int opcode;
  const char* name;
  bool loads;  // by L1TEX, or it asks whether a bulk copy is there
};
// Of those that set or wait on barriers often, and branches.
constexpr Name kNames[] = {
    {0x981, "LDG", true},      {0x980, "LD", true},         {0x983, "LDL", true},
    {kLdgsts, "LDGSTS", true}, {0x3a8, "ATOMG", true},      {0x9a8, "ATOMG", true},
    {0xb60, "TEX", true},      {0x361, "TEX", true},        {0x367, "TLD", true},
    {0x984, "LDS", false},     {0x83b, "LDSM", false},      {0xb82, "LDC", false},
    {0x7ac, "LDCU", false},    {0xab9, "ULDC", false},      {0x919, "S2R", false},
    {0x9c3, "S2UR", false},    {0x308, "MUFU", false},      {0x306, "I2F", false},
    {0x305, "F2I", false},     {0x309, "POPC", false},      {0x389, "SHFL", false},
    {0xf89, "SHFL", false},    {0x986, "STG", false},       {0x988, "STS", false},
    {0x985, "ST", false},      {0x987, "STL", false},       {0x98e, "RED", false},
    {0xb1d, "BAR", false},     {0x9af, "LDGDEPBAR", false}, {kDepbar, "DEPBAR", false},
    {0x5a7, "SYNCS", true},    {kBra, "BRA", false},        {kBraUniform, "BRA", false},
    {kExit, "EXIT", false},    {0x918, "NOP", false},       {0x23c, "HMMA", false},
    {0x237, "IMMA", false},    {0x5b4, "UTMALDG", false},   {0x3ba, "UBLKCP", false},
    {0x945, "BSSY", false},    {0x941, "BSYNC", false},     {0x992, "MEMBAR", false},
    {0x98f, "CCTL", false},    {0x387, "STL", false},       {0x9f0, "HGMMA", false},
    {0xdf0, "HGMMA", false},
};

// Arithmetic by its lower nine bits: the upper three say where the operands are. As nvdisasm calls
// them on all known architectures.
constexpr int kOperation = 0x1ff;
constexpr Name kArithmetic[] = {
    {0x002, "MOV", false},   {0x007, "SEL", false},   {0x008, "FSEL", false},
    {0x009, "FMNMX", false}, {0x00b, "FSETP", false}, {0x00c, "ISETP", false},
    {0x010, "IADD3", false}, {0x011, "LEA", false},   {0x012, "LOP3", false},
    {0x016, "PRMT", false},  {0x019, "SHF", false},   {0x020, "FMUL", false},
    {0x021, "FADD", false},  {0x023, "FFMA", false},  {0x024, "IMAD", false},
    {0x025, "IMAD", false},  {0x027, "IMAD", false},  {0x030, "HADD2", false},
    {0x031, "HFMA2", false}, {0x032, "HMUL2", false}, {0x035, "HFMA2", false},
    {0x03e, "F2FP", false},  {0x045, "I2FP", false},  {0x0ca, "R2UR", false},
};

const Name* known(int opcode) {
  const auto found = std::find_if(std::begin(kNames), std::end(kNames),
                                  [&](const Name& name) { return name.opcode == opcode; });
  if (found != std::end(kNames)) return found;
  const auto operation =
      std::find_if(std::begin(kArithmetic), std::end(kArithmetic),
                   [&](const Name& name) { return name.opcode == (opcode & kOperation); });
  return operation == std::end(kArithmetic) ? nullptr : operation;
}

template <class T>
T read(std::span<const std::byte> file, uint64_t at) {
  if (at > file.size() || file.size() - at < sizeof(T)) {
    fail(ErrorCode::bad_file, "a cubin ends in the middle of its tables");
  }
  T out;
  std::memcpy(&out, file.data() + at, sizeof out);
  return out;
}

std::span<const std::byte> slice(std::span<const std::byte> file, uint64_t at, uint64_t size) {
  if (at > file.size() || file.size() - at < size) {
    fail(ErrorCode::bad_file, "a section of a cubin lies outside of it");
  }
  return file.subspan(at, size);
}

std::string text_at(std::span<const std::byte> strings, uint64_t at) {
  if (at >= strings.size()) fail(ErrorCode::bad_file, "a name of a cubin lies outside its table");
  const char* const begin = reinterpret_cast<const char*>(strings.data()) + at;
  return {begin, strnlen(begin, strings.size() - at)};
}

uint64_t bits(uint64_t low, uint64_t high, int first, int count) {
  const uint64_t shifted = first >= 64  ? high >> (first - 64)
                           : first == 0 ? low
                                        : low >> first | high << (64 - first);
  return shifted & ((uint64_t{1} << count) - 1);
}

int barrier(uint64_t value) { return value == kNoBarrier ? -1 : static_cast<int>(value); }

// In bytes, from the instruction behind the branch. It counts words of four; Hopper moved the
// lowest eight bits of the count.
int64_t branch_distance(uint64_t low, uint64_t high, int architecture) {
  constexpr int kBits = 48;
  const int64_t upper = static_cast<int64_t>(bits(low, high, 34, kBits) << (64 - kBits)) >>
                        (64 - kBits);  // extends the sign
  if (architecture < 90) return upper * 4;
  return (upper * 256 + static_cast<int64_t>(bits(low, high, 16, 8))) * 4;
}

// Instructions from which `at` is reached directly, by index.
class Flow {
 public:
  explicit Flow(std::span<const SassInstruction> code) : code_(code), before_(code.size()) {
    for (size_t i = 0; i < code.size(); ++i) {
      if (i + 1 < code.size() && !code[i].ends_flow()) before_[i + 1].push_back(i);
      const size_t target = static_cast<size_t>(code[i].target / kSassBytes);
      if (code[i].target >= 0 && target < code.size()) before_[target].push_back(i);
    }
  }
  // Calls visit(index) for what runs before `at`, nearest first, and goes on where it says so.
  template <class Visit>
  void backwards(size_t at, Visit&& visit) const {
    std::vector<size_t> next = before_[at];
    std::vector<bool> seen(code_.size());
    for (size_t i = 0; i < next.size(); ++i) {
      if (seen[next[i]]) continue;
      seen[next[i]] = true;
      if (!visit(next[i])) continue;
      const std::vector<size_t>& more = before_[next[i]];
      next.insert(next.end(), more.begin(), more.end());
    }
  }

 private:
  std::span<const SassInstruction> code_;
  std::vector<std::vector<size_t>> before_;
};

}  // namespace

std::string SassInstruction::name() const {
  const Name* found = known(opcode);
  return found ? found->name : fmt::format("0x{:03x}", opcode);
}

bool SassInstruction::is_branch() const { return opcode == kBra || opcode == kBraUniform; }

bool SassInstruction::ends_flow() const { return always && (opcode == kBra || opcode == kExit); }

bool SassInstruction::may_load() const {
  const Name* found = known(opcode);
  return found && found->loads;
}

SassInstruction decode_sass(std::span<const std::byte, kSassBytes> bytes, int64_t offset,
                            int architecture) {
  uint64_t low = 0, high = 0;
  std::memcpy(&low, bytes.data(), 8);
  std::memcpy(&high, bytes.data() + 8, 8);
  constexpr uint64_t kTrue = 7;
  SassInstruction out;
  out.opcode = static_cast<int>(bits(low, high, 0, 12));
  out.write_barrier = barrier(bits(low, high, 110, 3));
  out.read_barrier = barrier(bits(low, high, 113, 3));
  out.wait_mask = static_cast<uint32_t>(bits(low, high, 116, 6));
  out.always = bits(low, high, 12, 4) == kTrue && bits(low, high, 87, 3) == kTrue;
  if (out.opcode == kExit) out.always = bits(low, high, 12, 4) == kTrue;
  if (out.opcode == kDepbar) out.wait_mask |= 1u << bits(low, high, 44, 3);
  if (out.is_branch()) out.target = offset + kSassBytes + branch_distance(low, high, architecture);
  return out;
}

Cubin::Cubin(std::span<const std::byte> file) : file_(file) {
  constexpr uint32_t kElf = 0x464c457f;
  constexpr uint16_t kCuda = 190;
  if (read<uint32_t>(file, 0) != kElf || read<uint16_t>(file, 18) != kCuda) {
    fail(ErrorCode::bad_file, "this is no cubin");
  }
  const uint32_t flags = read<uint32_t>(file, 48);
  constexpr int kWideFlags = 8;  // version of the ABI from which the architecture has moved
  const int abi = static_cast<int>(read<uint8_t>(file, 8));
  architecture_ = static_cast<int>(abi >= kWideFlags ? flags >> 8 & 0xff : flags & 0xff);

  constexpr uint64_t kHeaderBytes = 64;
  const uint64_t table = read<uint64_t>(file, 40);
  const uint16_t n_sections = read<uint16_t>(file, 60);
  const auto section = [&](uint64_t index) {
    const uint64_t header = table + index * kHeaderBytes;
    return slice(file, read<uint64_t>(file, header + 24), read<uint64_t>(file, header + 32));
  };
  const std::span<const std::byte> strings = section(read<uint16_t>(file, 62));
  constexpr std::string_view kPrefix = ".text.";
  for (uint64_t i = 1; i < n_sections; ++i) {
    const std::string name = text_at(strings, read<uint32_t>(file, table + i * kHeaderBytes));
    if (name.starts_with(kPrefix)) functions_[name.substr(kPrefix.size())] = section(i);
  }
}

bool Cubin::is_known() const {
  return std::ranges::find(kKnownArchitectures, architecture_) != kKnownArchitectures.end();
}

std::vector<std::string> Cubin::functions() const {
  std::vector<std::string> out;
  for (const auto& [name, code] : functions_) out.push_back(name);
  return out;
}

std::vector<SassInstruction> Cubin::code(const std::string& function) const {
  std::vector<SassInstruction> out;
  const auto found = functions_.find(function);
  if (found == functions_.end()) return out;
  const std::span<const std::byte> bytes = found->second;
  for (size_t at = 0; at + kSassBytes <= bytes.size(); at += kSassBytes) {
    out.push_back(decode_sass(bytes.subspan(at).first<kSassBytes>(), static_cast<int64_t>(at),
                              architecture_));
  }
  return out;
}

std::vector<int64_t> find_producers(std::span<const SassInstruction> code, int64_t offset) {
  const size_t at = static_cast<size_t>(offset / kSassBytes);
  FATHOM_CHECK(offset >= 0 && at < code.size(), "an offset outside the code");
  const Flow flow(code);
  std::set<size_t> found;
  const bool waits_for_copies = code[at].opcode == kDepbar;
  for (int b = 0; b < 6; ++b) {
    const uint32_t bit = 1u << b;
    if ((code[at].wait_mask & bit) == 0) continue;
    flow.backwards(at, [&](size_t i) {
      const bool sets = code[i].write_barrier == b || code[i].read_barrier == b;
      if (waits_for_copies ? code[i].opcode == kLdgsts : sets && code[i].may_load()) {
        found.insert(i);
      }
      if (waits_for_copies) return code[i].opcode != kDepbar;
      return (code[i].wait_mask & bit) == 0;
    });
  }
  std::vector<int64_t> out;
  for (const size_t i : found) out.push_back(static_cast<int64_t>(i) * kSassBytes);
  std::sort(out.begin(), out.end(), [&](int64_t a, int64_t b) {
    // What stands before comes first, from near to far; then what a loop brings round.
    const bool a_before = a < offset, b_before = b < offset;
    return a_before != b_before ? a_before : a > b;
  });
  return out;
}

}  // namespace fathom::cuda
