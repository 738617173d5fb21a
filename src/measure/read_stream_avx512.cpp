// SPDX-License-Identifier: Apache-2.0
#include "measure/read_stream.hpp"

namespace fathom::measure {

constinit const ReadStreamTable kReadStreamAvx512 = read_stream_table<64>("avx512");

}  // namespace fathom::measure
