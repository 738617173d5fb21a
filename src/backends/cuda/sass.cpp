// SPDX-License-Identifier: Apache-2.0
// Bits of an instruction: 0-11 opcode, 12-15 predicate, 110-112 write barrier, 113-115 read
// barrier, 116-121 wait mask; of a load 73-75 its size; of BSSY and BSYNC 16-19 the barrier; of a
// branch and of BSSY 34-81 the distance, with eight low bits in 16-23 from
// sm_90 on (zero before). Layout after Jia et al., arXiv 1804.06826; held by sass_test.cpp.
#include "backends/cuda/sass.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.hpp"

namespace fathom::cuda {
namespace {

constexpr int kBra = 0x947, kBraUniform = 0x547, kExit = 0x94d;
constexpr int kBssy = 0x945, kBsync = 0x941, kCall = 0x944, kRet = 0x950, kBrx = 0x949;
constexpr int kAcqBulk = 0x82e, kUblkcp = 0x3ba, kUtmaldg = 0x5b4;
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
    {0x981, "LDG", true},      {0x980, "LD", true},          {0x983, "LDL", true},
    {kLdgsts, "LDGSTS", true}, {0x3a8, "ATOMG", true},       {0x9a8, "ATOMG", true},
    {0xb60, "TEX", true},      {0x361, "TEX", true},         {0x367, "TLD", true},
    {0x984, "LDS", false},     {0x83b, "LDSM", false},       {0xb82, "LDC", false},
    {0x7ac, "LDCU", false},    {0xab9, "ULDC", false},       {0x919, "S2R", false},
    {0x9c3, "S2UR", false},    {0x308, "MUFU", false},       {0x306, "I2F", false},
    {0x305, "F2I", false},     {0x309, "POPC", false},       {0x389, "SHFL", false},
    {0xf89, "SHFL", false},    {0x986, "STG", false},        {0x988, "STS", false},
    {0x985, "ST", false},      {0x987, "STL", false},        {0x98e, "RED", false},
    {0xb1d, "BAR", false},     {0x9af, "LDGDEPBAR", false},  {kDepbar, "DEPBAR", false},
    {0x5a7, "SYNCS", true},    {kBra, "BRA", false},         {kBraUniform, "BRA", false},
    {kExit, "EXIT", false},    {0x918, "NOP", false},        {0x23c, "HMMA", false},
    {0x237, "IMMA", false},    {kUtmaldg, "UTMALDG", false}, {kUblkcp, "UBLKCP", false},
    {kBssy, "BSSY", false},    {kBsync, "BSYNC", false},     {0x992, "MEMBAR", false},
    {0x98f, "CCTL", false},    {0x387, "STL", false},        {0x9f0, "HGMMA", false},
    {0xdf0, "HGMMA", false},   {kAcqBulk, "ACQBULK", false}, {0x82d, "PREEXIT", false},
    {kCall, "CALL", false},    {kRet, "RET", false},         {kBrx, "BRX", false},
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
int64_t upper_distance(uint64_t low, uint64_t high) {
  constexpr int kBits = 48;
  return static_cast<int64_t>(bits(low, high, 34, kBits) << (64 - kBits)) >>
         (64 - kBits);  // extends the sign
}
int64_t branch_distance(uint64_t low, uint64_t high, int architecture) {
  const int64_t upper = upper_distance(low, high);
  if (architecture < 90) return upper * 4;
  return (upper * 256 + static_cast<int64_t>(bits(low, high, 16, 8))) * 4;
}
// Of BSSY to the end of its region.
int64_t region_distance(uint64_t low, uint64_t high) { return upper_distance(low, high) * 4; }

// Which instructions may follow which, by index.
class Flow {
 public:
  explicit Flow(std::span<const SassInstruction> code)
      : code_(code), before_(code.size()), after_(code.size()) {
    for (size_t i = 0; i < code.size(); ++i) {
      if (code[i].opcode == kBsync && code[i].always) continue;
      if (!code[i].ends_flow()) connect(i, i + 1);
      if (code[i].is_branch()) connect(i, target(i));
      for (const int64_t to : code[i].table) connect(i, static_cast<size_t>(to / kSassBytes));
    }
    connect_regions();
  }
  size_t size() const { return code_.size(); }
  const std::vector<size_t>& before(size_t i) const { return before_[i]; }
  const std::vector<size_t>& after(size_t i) const { return after_[i]; }

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
  size_t target(size_t i) const { return static_cast<size_t>(code_[i].target / kSassBytes); }
  void connect(size_t from, size_t to) {
    if (to >= code_.size()) return;
    if (std::ranges::find(after_[from], to) != after_[from].end()) return;
    after_[from].push_back(to);
    before_[to].push_back(from);
  }
  // The end of a region where threads part leads to where its beginning says.
  void connect_regions() {
    size_t n_before = 0, n = 1;
    while (n != n_before) {  // a way through another region's end may lead to this one's
      n_before = n;
      n = 1;
      for (size_t i = 0; i < code_.size(); ++i) {
        if (code_[i].opcode == kBssy && code_[i].target >= 0) n += connect_region(i);
      }
    }
    for (size_t i = 0; i < code_.size(); ++i) {
      if (code_[i].opcode == kBsync && after_[i].empty()) connect(i, i + 1);
    }
  }
  size_t connect_region(size_t begin) {
    size_t n_ends = 0;
    std::set<size_t> seen;
    std::vector<size_t> next{begin + 1};
    while (!next.empty()) {
      const size_t i = next.back();
      next.pop_back();
      if (i >= code_.size() || !seen.insert(i).second) continue;
      const bool same = code_[i].convergence == code_[begin].convergence;
      if (same && code_[i].opcode == kBsync) {
        connect(i, target(begin));
        ++n_ends;
      } else if (!same) {
        next.insert(next.end(), after_[i].begin(), after_[i].end());
      }
    }
    return n_ends;
  }

  std::span<const SassInstruction> code_;
  std::vector<std::vector<size_t>> before_, after_;
};

using Edge = std::pair<size_t, size_t>;

// The back edges of loops that hold a wait.
class WaitLoops {
 public:
  WaitLoops(std::span<const SassInstruction> code, const Flow& flow) : flow_(flow) {
    find_order();
    find_dominators();
    for (const size_t from : order_) {
      for (const size_t to : flow.after(from)) {
        if (dominates(to, from) && holds_wait(code, to, from)) edges_.insert({from, to});
      }
    }
  }
  bool contains(size_t from, size_t to) const { return edges_.contains({from, to}); }

 private:
  static constexpr size_t kNone = ~size_t{0};

  // Reverse postorder of what is reached from the first instruction.
  void find_order() {
    std::vector<bool> seen(flow_.size());
    std::vector<std::pair<size_t, size_t>> open{{0, 0}};  // instruction, successors done
    seen[0] = true;
    while (!open.empty()) {
      const size_t i = open.back().first;
      if (open.back().second == flow_.after(i).size()) {
        order_.push_back(i);
        open.pop_back();
        continue;
      }
      const size_t next = flow_.after(i)[open.back().second++];
      if (seen[next]) continue;
      seen[next] = true;
      open.push_back({next, 0});
    }
    std::ranges::reverse(order_);
    place_.assign(flow_.size(), kNone);
    for (size_t k = 0; k < order_.size(); ++k) place_[order_[k]] = k;
  }
  // Immediate dominators, after Cooper, Harvey and Kennedy.
  void find_dominators() {
    dominator_.assign(flow_.size(), kNone);
    dominator_[0] = 0;
    for (bool changed = true; changed;) {
      changed = false;
      for (const size_t i : order_) {
        if (i == 0) continue;
        size_t found = kNone;
        for (const size_t from : flow_.before(i)) {
          if (dominator_[from] == kNone) continue;
          found = found == kNone ? from : common(found, from);
        }
        changed |= found != dominator_[i];
        dominator_[i] = found;
      }
    }
  }
  size_t common(size_t a, size_t b) const {
    while (a != b) {
      while (place_[a] > place_[b]) a = dominator_[a];
      while (place_[b] > place_[a]) b = dominator_[b];
    }
    return a;
  }
  bool dominates(size_t a, size_t of) const {
    while (place_[of] > place_[a]) of = dominator_[of];
    return of == a;
  }
  bool holds_wait(std::span<const SassInstruction> code, size_t head, size_t end) const {
    std::set<size_t> loop{head};
    std::vector<size_t> next{end};
    while (!next.empty()) {
      const size_t i = next.back();
      next.pop_back();
      if (!loop.insert(i).second) continue;
      next.insert(next.end(), flow_.before(i).begin(), flow_.before(i).end());
    }
    return std::ranges::any_of(loop, [&](size_t i) { return code[i].is_pdl_wait(); });
  }

  const Flow& flow_;
  std::vector<size_t> order_, place_, dominator_;
  std::set<Edge> edges_;
};

// What lies on ways from the beginning that have not waited, or (backwards) on ways to a wait;
// follows(from, to): the edges to go along.
template <class Follows>
std::vector<bool> without_wait(std::span<const SassInstruction> code, const Flow& flow,
                               bool is_backwards, const Follows& follows) {
  std::vector<bool> found(code.size());
  std::vector<size_t> next;
  for (size_t i = 0; i < (is_backwards ? code.size() : size_t{1}); ++i) {
    if (!is_backwards || code[i].is_pdl_wait()) next.push_back(i);
  }
  for (const size_t i : next) found[i] = true;
  while (!next.empty()) {
    const size_t i = next.back();
    next.pop_back();
    if (!is_backwards && code[i].is_pdl_wait()) continue;
    for (const size_t k : is_backwards ? flow.before(i) : flow.after(i)) {
      if (found[k] || (is_backwards && code[k].is_pdl_wait())) continue;
      if (!(is_backwards ? follows(k, i) : follows(i, k))) continue;
      found[k] = true;
      next.push_back(k);
    }
  }
  return found;
}

// From a function's .nv.info: attributes of a format, a kind and, of most formats, two bytes of
// value; of the last format a length and a value. Kind 0x34 are words: a branch, zero, n, n places.
void add_branch_tables(std::span<const std::byte> info, std::vector<SassInstruction>& code) {
  constexpr int kSized = 4, kBranchTargets = 0x34;
  for (size_t at = 0; at + 4 <= info.size();) {
    const int format = static_cast<int>(info[at]), attribute = static_cast<int>(info[at + 1]);
    const size_t bytes = format == kSized ? read<uint16_t>(info, at + 2) : 0;
    const auto value = slice(info, at + 4, bytes);
    at += 4 + bytes;
    if (attribute != kBranchTargets || format != kSized) continue;
    for (size_t k = 0; k + 12 <= value.size();) {
      const size_t branch = read<uint32_t>(value, k) / kSassBytes;
      const uint32_t n = read<uint32_t>(value, k + 8);
      k += 12;
      for (uint32_t i = 0; i < n; ++i, k += 4) {
        const int64_t to = read<uint32_t>(value, k);
        if (branch < code.size()) code[branch].table.push_back(to);
      }
    }
  }
}

}  // namespace

std::string SassInstruction::name() const {
  const Name* found = known(opcode);
  return found ? found->name : fmt::format("0x{:03x}", opcode);
}

bool SassInstruction::is_branch() const { return opcode == kBra || opcode == kBraUniform; }

bool SassInstruction::ends_flow() const {
  return always && (opcode == kBra || opcode == kExit || opcode == kRet || opcode == kBrx);
}

bool SassInstruction::may_load() const {
  const Name* found = known(opcode);
  return found && found->loads;
}

bool SassInstruction::is_pdl_wait() const { return always && opcode == kAcqBulk; }

bool SassInstruction::may_read_global() const {
  // Bits 9 to 11 say where operands come from: LDG, LD, LDGSTS, ATOMG, UBLKCP, UTMALDG.
  constexpr int kForm = 7 << 9;
  constexpr std::array kReads = {0x181, 0x180, 0x1ae, 0x1a8, 0x1a9, 0x1ba, 0x1b4};
  const bool reads = std::ranges::find(kReads, opcode & ~kForm) != kReads.end();
  return reads || opcode == kCall || opcode == kBrx || name() == "TEX" || name() == "TLD";
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
  out.always = bits(low, high, 12, 4) == kTrue;
  if (out.is_branch()) out.always &= bits(low, high, 87, 3) == kTrue;
  if (out.opcode == kDepbar) out.wait_mask |= 1u << bits(low, high, 44, 3);
  if (out.is_branch()) out.target = offset + kSassBytes + branch_distance(low, high, architecture);
  if (out.opcode == kBssy) out.target = offset + kSassBytes + region_distance(low, high);
  if (out.opcode == kBssy || out.opcode == kBsync) {
    out.convergence = static_cast<int>(bits(low, high, 16, 4));
  }
  if (out.may_load()) {
    constexpr int kSizes[] = {8, 8, 16, 16, 32, 64, 128, 128};
    out.access_bits = kSizes[bits(low, high, 73, 3)];
  }
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
  constexpr std::string_view kPrefix = ".text.", kInfo = ".nv.info.";
  for (uint64_t i = 1; i < n_sections; ++i) {
    const std::string name = text_at(strings, read<uint32_t>(file, table + i * kHeaderBytes));
    if (name.starts_with(kPrefix)) functions_[name.substr(kPrefix.size())] = section(i);
    if (name.starts_with(kInfo)) infos_[name.substr(kInfo.size())] = section(i);
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
  const auto info = infos_.find(function);
  if (info != infos_.end()) add_branch_tables(info->second, out);
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

EarlyReads find_early_reads(std::span<const SassInstruction> code) {
  EarlyReads out;
  if (code.empty()) return out;
  const Flow flow(code);
  const WaitLoops loops(code, flow);
  const auto any = [](size_t, size_t) { return true; };
  const auto once = [&](size_t from, size_t to) { return !loops.contains(from, to); };
  const std::vector<bool> begun = without_wait(code, flow, false, once),
                          waits = without_wait(code, flow, true, once),
                          begun_anyhow = without_wait(code, flow, false, any),
                          waits_anyhow = without_wait(code, flow, true, any);
  for (size_t i = 0; i < code.size(); ++i) {
    if (!code[i].may_read_global()) continue;
    const int64_t offset = static_cast<int64_t>(i) * kSassBytes;
    if (begun[i] && waits[i]) out.before_wait.push_back(offset);
    if (begun_anyhow[i] && !waits_anyhow[i]) out.never_waits.push_back(offset);
  }
  return out;
}

std::vector<std::span<const std::byte>> find_cubins(std::span<const std::byte> file) {
  constexpr std::array kMagic = {std::byte{0x7f}, std::byte{'E'}, std::byte{'L'}, std::byte{'F'}};
  constexpr size_t kMachine = 18, kAlignment = 8;
  std::vector<std::span<const std::byte>> out;
  for (auto at = file.begin();; ++at) {
    at = std::search(at, file.end(), kMagic.begin(), kMagic.end());
    if (at == file.end()) return out;
    const size_t offset = static_cast<size_t>(at - file.begin());
    if (offset % kAlignment != 0 || file.size() - offset < 64) continue;
    constexpr uint16_t kCuda = 190;
    if (read<uint16_t>(file, offset + kMachine) == kCuda) out.push_back(file.subspan(offset));
  }
}

}  // namespace fathom::cuda
