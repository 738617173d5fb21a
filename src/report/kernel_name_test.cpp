// SPDX-License-Identifier: Apache-2.0
// Names of kernels as compilers give them, and what is shown of them.
#include "report/kernel_name.hpp"

#include <gtest/gtest.h>

namespace fathom::report {
namespace {

TEST(ShortKernelName, LeavesOutNamespacesAndParameters) {
  EXPECT_EQ(
      short_kernel_name("_ZN6fathom4cuda24attn_seed_combine_kernelILi128EEEvNS0_14AttnSeedParamsE"),
      "attn_seed_combine_kernel<128>");
  EXPECT_EQ(short_kernel_name(
                "void fathom::cuda::attn_seed_combine_kernel<128>(fathom::cuda::AttnSeedParams)"),
            "attn_seed_combine_kernel<128>");
  EXPECT_EQ(short_kernel_name("embed_kernel"), "embed_kernel");
}

TEST(ShortKernelName, OfANamespaceWithoutAName) {
  EXPECT_EQ(short_kernel_name("_ZN6fathom4cuda52_GLOBAL__N__bdbea08a_19_matmul_acts_cuda_cu_"
                              "b5719eea18matmul_acts_kernel"
                              "ENS_5quant12MatmulParamsEi"),
            "matmul_acts_kernel");
  EXPECT_EQ(short_kernel_name("void fathom::cuda::(anonymous namespace)::kernel<fathom::(anonymous "
                              "namespace)::Op>(int)"),
            "kernel<fathom::Op>");
}

}  // namespace
}  // namespace fathom::report
