// SPDX-License-Identifier: Apache-2.0
// How a feed-forward block's two ops hand over h in a step of one row.
#pragma once

#include "kernels/op_table.hpp"

namespace fathom::cuda {

// As codes with their scales (quant::act_layout), where down takes its activations so alone and
// they are no longer than the floats: made once, not by each of down's blocks.
HiddenForm hidden_form(const NormGateUpActArgs::Static& front,
                       const DownProjResidualArgs::Static& down);

}  // namespace fathom::cuda
