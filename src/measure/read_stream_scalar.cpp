// SPDX-License-Identifier: Apache-2.0
#include "measure/read_stream.hpp"

namespace fathom::measure {

constinit const ReadStreamTable kReadStreamScalar = read_stream_table<16>("scalar");

}  // namespace fathom::measure
