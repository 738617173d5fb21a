// SPDX-License-Identifier: Apache-2.0
// FATHOM_HD: of functions that host and device share.
#pragma once

#ifdef __CUDACC__
#define FATHOM_HD __host__ __device__
#else
#define FATHOM_HD
#endif
