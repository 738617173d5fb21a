// SPDX-License-Identifier: Apache-2.0
// The read loop with 32-byte vectors, in an object that alone has the flags of AVX2.
#include "measure/read_stream.hpp"

namespace fathom::measure {

constinit const ReadStreamTable kReadStreamAvx2 = read_stream_table<32>("avx2");

}  // namespace fathom::measure
