// SPDX-License-Identifier: Apache-2.0
// FATHOM_API marks what the shared library exports.
#pragma once

#define FATHOM_API __attribute__((visibility("default")))
