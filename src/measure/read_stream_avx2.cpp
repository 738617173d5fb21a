// SPDX-License-Identifier: Apache-2.0
#include "measure/read_stream.hpp"

namespace fathom::measure {

constinit const ReadStreamTable kReadStreamAvx2 = read_stream_table<32>("avx2");

}  // namespace fathom::measure
