// SPDX-License-Identifier: Apache-2.0
// For files that are written under another name and renamed at the end, so that an interrupted run
// leaves nothing under the final name.
#pragma once

#include <string>

namespace fathom {

// Throws Error{bad_file} when something other than a regular file stands at `path`: a rename would
// replace a device node, and cannot replace a folder.
void require_replaceable(const std::string& path);

// The name to write under until the file is complete, in the same folder.
std::string partial_name(const std::string& path);

// For what is written after minutes of work: throws Error{bad_file} now if it could not be then.
void require_writable(const std::string& path);

// The text alone is in the file afterwards, or the file is as it was and Error{bad_file} is thrown.
void write_text_file(const std::string& path, const std::string& text);

}  // namespace fathom
