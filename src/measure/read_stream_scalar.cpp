// SPDX-License-Identifier: Apache-2.0
// The read loop with 16-byte vectors, which need no flags.
#include "measure/read_stream.hpp"

namespace fathom::measure {

constinit const ReadStreamTable kReadStreamScalar = read_stream_table<16>("scalar");

}  // namespace fathom::measure
