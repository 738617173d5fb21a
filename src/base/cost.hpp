// SPDX-License-Identifier: Apache-2.0
// Cost is part of the public interface; this is its name inside the library.
#pragma once

#include "fathom/op_scope.hpp"
