#include "daemon/session.h"

#include <unistd.h>

#include <algorithm>
#include <span>
#include <utility>

#include "capi/wire/messages.h"

namespace quern {

namespace {

// A smaller frame is not worth the bookkeeping: all clients together cannot hold much in such.
constexpr size_t kSmallFrame = 64 << 10;
// With more unread than this, a client's further requests are left in its socket until it reads.
constexpr size_t kPauseOutput = 256 << 10;

Session& session_of(void* handle) { return *static_cast<Session*>(static_cast<uv_handle_t*>(handle)->data); }

// What is left of the frames behind the first `skip` bytes; until the next call.
std::span<const uv_buf_t> buffers_of(std::span<const wire::OutFrame> frames, size_t skip) {
  static std::vector<uv_buf_t> buffers;
  buffers.clear();
  const auto add = [&](const std::string& bytes) {
    const size_t gone = std::min(skip, bytes.size());
    skip -= gone;
    if (gone == bytes.size()) return;
    buffers.push_back(
        uv_buf_init(const_cast<char*>(bytes.data()) + gone, static_cast<unsigned>(bytes.size() - gone)));
  };
  for (const wire::OutFrame& frame : frames) {
    add(frame.head);
    if (frame.body) add(*frame.body);
  }
  return buffers;
}

// libuv reads into it and hands it over before it reads again, and there is one thread: one buffer serves all
// sessions.
char read_buffer[1 << 15];
// Likewise for what goes out at once.
alignas(64) char write_buffer[1 << 14];

// A head and a small plan in one piece: the kernel, which copies a plan that is in no cache to wherever the
// head has ended, takes longer than memcpy and the kernel together. At 32 KiB it is the other way round.
uv_buf_t gathered(std::span<const wire::OutFrame> frames) {
  char* end = write_buffer;
  for (const wire::OutFrame& frame : frames) {
    end = std::copy_n(frame.head.data(), frame.head.size(), end);
    if (frame.body) end = std::copy_n(frame.body->data(), frame.body->size(), end);
  }
  return uv_buf_init(write_buffer, static_cast<unsigned>(end - write_buffer));
}

}  // namespace

struct Session::Write {
  uv_write_t request;
  std::vector<wire::OutFrame> frames;
  Charge charge;
  uint64_t queued_ns = uv_hrtime();
};

Session::Session(uv_loop_t* loop, uint64_t id, const SessionLimits* limits, const Hooks* hooks)
    : id_(id), limits_(limits), hooks_(hooks) {
  uv_pipe_init(loop, &pipe_, 0);
  pipe_.data = this;
}

Status Session::start(int socket, std::shared_ptr<Account> account) {
  account_ = std::move(account);
  if (const int code = uv_pipe_open(&pipe_, socket); code != 0) {
    ::close(socket);
    return Status(ErrorCode::IO, std::string("a new connection: ") + uv_strerror(code));
  }
  pause_or_resume();
  return {};
}

size_t Session::output() const {
  if (closing_) return 0;
  return outbox_bytes_ + uv_stream_get_write_queue_size(reinterpret_cast<const uv_stream_t*>(&pipe_));
}

// ---- reading
// --------------------------------------------------------------------------------------------------

// A client that sends more than fits has the rest read when the others had their turn: without a buffer libuv
// goes on to them, and comes back.
void Session::on_alloc(uv_handle_t* handle, size_t, uv_buf_t* buffer) {
  const bool turn_is_over = std::exchange(session_of(handle).filled_, false);
  *buffer = uv_buf_init(read_buffer, turn_is_over ? 0 : sizeof read_buffer);
}

void Session::on_read(uv_stream_t* stream, ssize_t size, const uv_buf_t* buffer) {
  Session& session = session_of(stream);
  if (size == UV_ENOBUFS) return;
  session.filled_ = size == sizeof read_buffer;
  if (size < 0) return session.close(size == UV_EOF ? "left" : uv_strerror(static_cast<int>(size)));
  session.read({buffer->base, static_cast<size_t>(size)});
}

void Session::read(std::string_view bytes) {
  if (refused_) return;
  reader_.append(bytes);
  take_frames(incomplete_since_ == 0);
}

// As long as the client reads what it gets for them. `first_part`: of the frame that is not complete.
void Session::take_frames(bool first_part) {
  for (; !closing_ && !refused_ && output() <= kPauseOutput; first_part = true) {
    auto frame = reader_.next();
    if (!frame) return refuse(frame.status());
    if (!*frame) return hold_frame(first_part);
    hooks_->frame(*this, **frame);
  }
}

// What is left is the beginning of a frame, or nothing.
void Session::hold_frame(bool first_part) {
  if (first_part) input_ = {};
  if (reader_.buffered() == 0) {
    incomplete_since_ = 0;
    return;
  }
  if (first_part) incomplete_since_ = uv_hrtime();
  if (const size_t frame = reader_.expected(); frame > kSmallFrame && !input_.ok()) {
    input_ = Charge(account_, frame);
    starved_ = !input_.ok();
    pause_or_resume();
  }
  hooks_->watch();
}

void Session::pause_or_resume() {
  if (closing_) return;
  const bool wanted = !starved_ && output() <= kPauseOutput;
  if (wanted == reading_) return;
  reading_ = wanted;
  const int code = wanted ? uv_read_start(stream(), on_alloc, on_read) : uv_read_stop(stream());
  if (code != 0) close(uv_strerror(code));
}

bool Session::look() {
  if (closing_) return false;
  const uint64_t now = uv_hrtime();
  if (!writes_.empty() && now - writes_.front()->queued_ns > limits_->output_ns) {
    close("left " + std::to_string(output()) + " bytes of answers unread for too long", true);
    return false;
  }
  if (starved_) {
    input_ = Charge(account_, reader_.expected());
    starved_ = !input_.ok();
    pause_or_resume();
  }
  // With its answers unread it is not the client who keeps the rest of the frame from us.
  if (!refused_ && incomplete_since_ != 0 && output() <= kPauseOutput &&
      now - incomplete_since_ > limits_->frame_ns) {
    if (starved_)
      refuse(Status(ErrorCode::BUSY, "there is no memory for a frame of " +
                                         std::to_string(reader_.expected()) + " bytes; try again later"));
    else
      close("did not send the rest of a frame in time", true);
  }
  return !closing_ && (incomplete_since_ != 0 || !writes_.empty());
}

// ---- writing
// --------------------------------------------------------------------------------------------------

void Session::send(wire::OutFrame frame) {
  if (closing_ || refused_) return;
  if (outbox_.empty()) hooks_->ready(*this);
  outbox_bytes_ += frame.size();
  outbox_.push_back(std::move(frame));
  // What the socket does not take is queued; on_written() then goes on with requests that wait for that.
  if (output() > kPauseOutput) flush();
}

void Session::flush() {
  if (closing_ || outbox_.empty()) return;
  const size_t size = std::exchange(outbox_bytes_, 0);
  const uv_buf_t together = size <= sizeof write_buffer ? gathered(outbox_) : uv_buf_t{};
  const auto buffers = together.base ? std::span(&together, 1) : buffers_of(outbox_, 0);
  const int sent = uv_try_write(stream(), buffers.data(), static_cast<unsigned>(buffers.size()));
  if (sent == static_cast<int>(size)) return outbox_.clear();
  auto frames = std::exchange(outbox_, {});
  if (sent < 0 && sent != UV_EAGAIN) return close(uv_strerror(sent));
  const size_t gone = sent < 0 ? 0 : static_cast<size_t>(sent);
  queue(std::move(frames), gone, size - gone);
}

// What the socket does not take now: `size` bytes, behind the first `sent`.
void Session::queue(std::vector<wire::OutFrame> frames, size_t sent, size_t size) {
  if (output() > limits_->output_bytes)
    return close("left " + std::to_string(output()) + " bytes of answers unread", true);
  auto write = std::make_unique<Write>();
  write->charge = charge_output(size);
  if (!write->charge.ok())
    return close("left " + std::to_string(output()) + " bytes of answers unread, and memory is short", true);
  write->frames = std::move(frames);
  write->request.data = write.get();
  const auto buffers = buffers_of(write->frames, sent);
  const int code =
      uv_write(&write->request, stream(), buffers.data(), static_cast<unsigned>(buffers.size()), on_written);
  if (code != 0) return close(uv_strerror(code));
  writes_.push_back(write.release());
  pause_or_resume();
  hooks_->watch();
}

Charge Session::charge_output(size_t bytes) {
  for (;;) {
    Charge charge(account_, bytes);
    if (charge.ok() || !hooks_->make_room(*this)) return charge;
  }
}

void Session::on_written(uv_write_t* request, int) {
  Session& session = session_of(request->handle);
  delete session.writes_.front();  // libuv writes them in order
  session.writes_.pop_front();
  if (!session.reading_ && !session.starved_) session.take_frames(true);
  session.pause_or_resume();
}

void Session::refuse(const Status& status) {
  send(wire::encode(0, wire::to_error(status)));
  flush();
  if (closing_ || refused_) return;
  refused_ = true;
  // What is queued goes out first; then the end of the stream tells the client, which closes its side or is
  // closed by the server's clock.
  auto* request = new uv_shutdown_t;
  const int code = uv_shutdown(request, stream(), [](uv_shutdown_t* request, int) { delete request; });
  if (code == 0) return;
  delete request;
  close(uv_strerror(code));
}

void Session::close(const std::string& why, bool client_fault) {
  if (!client_fault) flush();
  if (closing_) return;
  closing_ = true;
  // libuv gives them back in a moment; others may have the room at once.
  for (Write* write : writes_) write->charge = {};
  input_ = {};
  hooks_->closing(*this, why, client_fault);
  uv_close(reinterpret_cast<uv_handle_t*>(&pipe_), [](uv_handle_t* handle) {
    Session& session = session_of(handle);
    session.hooks_->closed(session);
  });
}

}  // namespace quern
