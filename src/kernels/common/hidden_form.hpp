// SPDX-License-Identifier: Apache-2.0
// How h stands between norm_gate_up_act and down_proj_residual.
#pragma once

namespace fathom {

enum class HiddenForm {
  floats,
  backend,  // in a step of one row, what the backend's down_proj_residual reads, in the same place
};

}  // namespace fathom
