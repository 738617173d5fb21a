// SPDX-License-Identifier: Apache-2.0
// Varints and length-delimited fields, and the packets made of them.
#include "report/perfetto.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace fathom::report {
namespace {

// Field numbers of the messages used.
enum : uint32_t {
  kTracePacket = 1,
  kTimestamp = 8,
  kTrustedPacketSequenceId = 10,
  kTrackEvent = 11,
  kSequenceFlags = 13,
  kTrackDescriptor = 60,
  kDescriptorUuid = 1,
  kDescriptorName = 2,
  kDescriptorParent = 5,
  kEventDebugAnnotations = 4,
  kEventType = 9,
  kEventTrackUuid = 11,
  kEventName = 23,
  kAnnotationStringValue = 6,
  kAnnotationName = 10,
};
constexpr uint64_t kSliceBegin = 1, kSliceEnd = 2;
constexpr uint64_t kSequence = 1, kStateCleared = 1;

class Message {
 public:
  void number(uint32_t field, uint64_t value) {
    varint(uint64_t{field} << 3);
    varint(value);
  }
  void bytes(uint32_t field, std::string_view value) {
    varint(uint64_t{field} << 3 | 2);
    varint(value.size());
    out_ += value;
  }
  void message(uint32_t field, const Message& value) { bytes(field, value.out_); }
  const std::string& str() const { return out_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_ += static_cast<char>(value | 0x80);
    out_ += static_cast<char>(value);
  }
  std::string out_;
};

class Writer {
 public:
  uint64_t track(const std::string& name, uint64_t parent) {
    const uint64_t uuid = ++last_uuid_;
    Message descriptor;
    descriptor.number(kDescriptorUuid, uuid);
    descriptor.bytes(kDescriptorName, name);
    if (parent != 0) descriptor.number(kDescriptorParent, parent);
    Message packet;
    packet.message(kTrackDescriptor, descriptor);
    add(packet);
    return uuid;
  }

  void slice(uint64_t track, const TraceSlice& slice, int64_t origin_ns) {
    Message begin;
    begin.number(kEventType, kSliceBegin);
    begin.number(kEventTrackUuid, track);
    begin.bytes(kEventName, slice.name);
    for (const auto& [name, value] : slice.notes) {
      Message note;
      note.bytes(kAnnotationName, name);
      note.bytes(kAnnotationStringValue, value);
      begin.message(kEventDebugAnnotations, note);
    }
    event(begin, slice.start_ns - origin_ns);
    Message end;
    end.number(kEventType, kSliceEnd);
    end.number(kEventTrackUuid, track);
    event(end, slice.end_ns - origin_ns);
  }

  std::string take() { return std::move(trace_).str(); }

 private:
  void event(const Message& event, int64_t ns) {
    Message packet;
    packet.number(kTimestamp, static_cast<uint64_t>(ns));
    packet.message(kTrackEvent, event);
    add(packet);
  }
  void add(Message& packet) {
    packet.number(kTrustedPacketSequenceId, kSequence);
    if (first_) packet.number(kSequenceFlags, kStateCleared);
    first_ = false;
    trace_.message(kTracePacket, packet);
  }

  Message trace_;
  uint64_t last_uuid_ = 0;
  bool first_ = true;
};

}  // namespace

std::string perfetto_trace(const std::vector<TraceTrack>& tracks) {
  Writer writer;
  for (const TraceTrack& track : tracks) {
    const uint64_t parent = writer.track(track.name, 0);
    struct Lane {
      uint64_t uuid;
      int64_t end_ns;
    };
    std::vector<Lane> lanes;
    const int64_t origin = track.slices.empty() ? 0 : track.slices.front().start_ns;
    for (const TraceSlice& slice : track.slices) {
      auto lane = std::find_if(lanes.begin(), lanes.end(),
                               [&](const Lane& l) { return l.end_ns <= slice.start_ns; });
      if (lane == lanes.end()) {
        const uint64_t uuid = writer.track(fmt::format("lane {}", lanes.size() + 1), parent);
        lane = lanes.insert(lanes.end(), {uuid, 0});
      }
      lane->end_ns = slice.end_ns;
      writer.slice(lane->uuid, slice, origin);
    }
  }
  return writer.take();
}

}  // namespace fathom::report
