// SPDX-License-Identifier: Apache-2.0
// What `fathom report` says of a damaged document.
#pragma once

#include <gmock/gmock.h>

#include <functional>
#include <string>

#include "base/error.hpp"
#include "report/recompute.hpp"

namespace fathom::test {

// The one line of the refusal of `good` after `change`; "accepted" when there is none.
inline std::string refusal(Json good, const std::function<void(Json&)>& change) {
  change(good);
  try {
    report::review(good);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::bad_file);
    EXPECT_THAT(e.what(), testing::Not(testing::HasSubstr("\n")));
    return e.what();
  }
  return "accepted";
}

}  // namespace fathom::test
