// SPDX-License-Identifier: Apache-2.0
// The machine code of a kernel, as far as it says what an instruction waits for: an instruction has
// a mask of the six barriers that it waits on, and a load names the barrier that it sets when its
// data is there. NVIDIA documents none of it: architectures that no test covers are refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace fathom::cuda {

inline constexpr int64_t kSassBytes = 16;  // an instruction

struct SassInstruction {
  int opcode = 0;              // 12 bits
  int write_barrier = -1;      // set once its results are there
  int read_barrier = -1;       // set once its operands have been read
  uint32_t wait_mask = 0;      // a bit for each barrier that it waits on
  int64_t target = -1;         // of a branch: offset in bytes
  bool always = true;          // not predicated
  int convergence = -1;        // of what opens or closes a region where threads part: its barrier
  int access_bits = 0;         // of a load: bits a thread
  std::vector<int64_t> table;  // of a branch through a register: where it may lead

  std::string name() const;  // "LDG"; a number such as "0x9c3" where it has no known name
  bool is_branch() const;
  bool ends_flow() const;    // what stands behind is not reached from here
  bool may_load() const;     // what L1TEX serves, or a question whether bulk copies have ended
  bool is_pdl_wait() const;  // griddepcontrol.wait
  // Brings values from global memory into registers or shared memory, or leads to code that this
  // decoder does not follow.
  bool may_read_global() const;
};

SassInstruction decode_sass(std::span<const std::byte, kSassBytes> bytes, int64_t offset,
                            int architecture);

// An ELF file with the code of one architecture. Throws Error{bad_file} for anything else.
class Cubin {
 public:
  explicit Cubin(std::span<const std::byte> file);
  int architecture() const { return architecture_; }  // 90 for sm_90
  // Whether a test covers the architecture's encoding.
  bool is_known() const;
  std::vector<std::string> functions() const;
  // Empty where the cubin has no such function.
  std::vector<SassInstruction> code(const std::string& function) const;

 private:
  std::span<const std::byte> file_;
  int architecture_ = 0;
  std::map<std::string, std::span<const std::byte>> functions_, infos_;
};

// Where the data comes from that the instruction at `offset` waits for: the loads that may have set
// one of its barriers, nearest first, found backwards along every path to it, each path up to an
// earlier wait on the same barrier. For a wait on asynchronous copies to shared memory, those.
// REQUIRES: offset is one of the code.
std::vector<int64_t> find_producers(std::span<const SassInstruction> code, int64_t offset);

// Offsets of what may read global memory before the kernels before have ended, in a kernel that
// waits for them (griddepcontrol.wait). A loop round a wait is a rehearsal of what stands behind
// it: that is not early, but what stands between its head and the wait is.
struct EarlyReads {
  std::vector<int64_t> before_wait;  // on a way to a wait
  std::vector<int64_t> never_waits;  // on ways that do not wait at all
};
EarlyReads find_early_reads(std::span<const SassInstruction> code);

// The cubins that a program or library holds in its .nv_fatbin, if they are not compressed.
std::vector<std::span<const std::byte>> find_cubins(std::span<const std::byte> file);

}  // namespace fathom::cuda
