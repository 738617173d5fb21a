// SPDX-License-Identifier: Apache-2.0
// The read loop with 64-byte vectors, in an object that alone has the flags of AVX-512.
#include "measure/read_stream.hpp"

namespace fathom::measure {

constinit const ReadStreamTable kReadStreamAvx512 = read_stream_table<64>("avx512");

}  // namespace fathom::measure
