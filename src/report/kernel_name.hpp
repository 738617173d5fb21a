// SPDX-License-Identifier: Apache-2.0
// A kernel's symbol for people: without namespaces, return type and parameters, mangled or not.
#pragma once

#include <string>

namespace fathom::report {

// "_ZN6fathom4cuda24attn_seed_combine_kernelILi128EEEvNS0_14AttnSeedParamsE" and
// "void fathom::cuda::attn_seed_combine_kernel<128>(fathom::cuda::AttnSeedParams)" ->
// "attn_seed_combine_kernel<128>"
std::string short_kernel_name(const std::string& symbol);

}  // namespace fathom::report
