#include "cache/database.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "cache/rescue.h"

namespace quern {

namespace {

constexpr uint64_t kSmallestView = uint64_t{64} << 20;  // of the file; doubled when it outgrows it

Result<std::shared_ptr<const Snapshot>> snapshot_of(std::shared_ptr<const FileMap> file, const Head& head) {
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->file = std::move(file);
  snapshot->head = head;
  TreePage page;
  for (int i = 0; i < kTableCount; ++i) {
    const auto node = find_node(snapshot->reader(), head.main, table_name(kAllTables[i]), page);
    if (node.status().code() == ErrorCode::NOT_FOUND) continue;
    if (!node) return node.status();
    auto tree = tree_of(*node);
    if (!tree) return tree.status();
    snapshot->tables[i] = *tree;
  }
  if (!snapshot->tables[static_cast<int>(Table::plans)])
    return Status(ErrorCode::CORRUPT, "the cache is damaged: it has no table of plans");
  return std::shared_ptr<const Snapshot>(std::move(snapshot));
}

uint64_t bytes_in(int fd) {
  struct stat file;
  return fstat(fd, &file) == 0 ? static_cast<uint64_t>(file.st_size) : 0;
}

}  // namespace

Result<std::shared_ptr<const Snapshot>> read_snapshot(std::shared_ptr<const FileMap> file) {
  const Heads heads = read_heads(*file);
  if (!heads.newest) return Status(ErrorCode::CORRUPT, "the cache file is damaged: it has no head page");
  return snapshot_of(std::move(file), *heads.newest);
}

Result<std::unique_ptr<Database>> Database::open(DatabaseOptions options) {
  std::unique_ptr<Database> database(new Database(std::move(options)));
  const bool read_only = database->options_.read_only;
  database->map_bytes_ = database->options_.map_bytes;
  if (Status status = database->open_file(!read_only); !status.ok()) return status;
  if (read_only) {
    if (Status status = database->load(); !status.ok()) return status;
    return database;
  }
  // An empty file becomes a store. The engine waits for the one of a daemon that was killed, whose last
  // commit counts: so the head is read once more.
  Status status = bytes_in(database->fd_) == 0 ? Status() : database->load();
  if (status.ok()) status = database->start_engine();
  if (status.ok()) status = database->load();
  // A damaged head makes LMDB ask for more than there is.
  if (status.code() == ErrorCode::OUT_OF_MEMORY)
    if (const Status found = database->look_at_pages(PageWalk::Depth::trees).status(); !found.ok())
      status = found;
  if (status.code() == ErrorCode::CORRUPT || status.code() == ErrorCode::WORKER)
    status = database->rescue(status);
  if (!status.ok()) return status;
  return database;
}

Database::~Database() {
  stop_engine();
  if (fd_ >= 0) close(fd_);
}

void Database::report(const std::string& message) const {
  if (options_.report) options_.report(message);
}

Status Database::open_file(bool create) {
  const int flags = (create ? O_RDWR | O_CREAT : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW;
  int fd = ::open(options_.path.c_str(), flags, 0600);
  if (fd < 0) return storage_error(errno, "cannot open " + options_.path);
  if (create) {
    // Made, and never written to by this process: only the engine has a descriptor that can.
    close(fd);
    fd = ::open(options_.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return storage_error(errno, "cannot open " + options_.path);
  }
  std::lock_guard lock(mutex_);
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
  file_.reset();
  older_.clear();
  return {};
}

Status Database::start_engine() {
  if (engine_) return {};
  auto engine = Engine::start({options_.engine, options_.path, options_.map_bytes, true});
  if (!engine) return engine.status();
  engine_ = std::move(*engine);
  map_bytes_ = engine_->map_bytes();
  engine_process_ = engine_->process();
  return {};
}

void Database::stop_engine() {
  engine_.reset();
  engine_process_ = 0;
}

// Takes the newest head as what is read from now on: with what was committed, if that is all that is new.
Status Database::load(const Batch* committed) {
  const uint64_t bytes = bytes_in(fd_);
  if (!file_ || file_->bytes() < bytes) {
    auto file = FileMap::map(fd_, std::max(kSmallestView, bytes * 2));
    if (!file) return file.status();
    std::lock_guard lock(mutex_);
    file_ = std::move(*file);
  }
  auto snapshot = read_snapshot(file_);
  if (!snapshot) return snapshot.status();
  {
    std::lock_guard lock(mutex_);
    if (current_) older_.push_back(current_);
    current_ = std::move(*snapshot);
    stale_ = false;
  }
  if (changed_) changed_(committed);
  return {};
}

std::shared_ptr<const Snapshot> Database::current() const {
  std::lock_guard lock(mutex_);
  return current_;
}

bool Database::is_in_place() const {
  struct stat path, file;
  return stat(options_.path.c_str(), &path) == 0 && fstat(fd_, &file) == 0 && path.st_ino == file.st_ino &&
         path.st_dev == file.st_dev;
}

uint64_t Database::file_bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_in(fd_);
}

void Database::suspect(const Status&) {
  std::lock_guard lock(mutex_);
  suspected_ = thoroughly_ = true;
}

PageWalk Database::look_at_pages(PageWalk::Depth depth) const {
  const auto snapshot = current();
  PageWalk walk(*snapshot->file, snapshot->head, file_bytes());
  // Between transactions both head pages are whole; LMDB reads them again for each.
  const Heads heads = read_heads(*snapshot->file);
  if (!heads.newest || !heads.other) walk.problem("a head page is damaged");
  walk.run(depth);
  return walk;
}

Status Database::make_sound() {
  if (!is_in_place()) {
    if (Status status = start_anew(); !status.ok()) return status;
  }
  if (stale_)
    if (Status status = load(); !status.ok() && status.code() != ErrorCode::CORRUPT) return status;
  if (suspected_) {
    bool thoroughly;
    {
      std::lock_guard lock(mutex_);
      thoroughly = std::exchange(thoroughly_, false);
      suspected_ = false;
    }
    const PageWalk walk = look_at_pages(thoroughly ? PageWalk::Depth::values : PageWalk::Depth::trees);
    if (Status status = walk.status(); !status.ok())
      if (status = rescue(status); !status.ok()) {
        suspected_ = true;
        return status;
      }
  }
  return start_engine();
}

Status Database::recover(const Status& failure) {
  if (!is_in_place()) return start_anew();
  switch (failure.code()) {
    case ErrorCode::LIMIT:
    case ErrorCode::STORAGE_FULL:
    case ErrorCode::PERMISSION:
      return failure;
    case ErrorCode::CORRUPT:
    case ErrorCode::WORKER:
      report(failure.message());
      return rescue(failure);
    default:
      break;
  }
  // The file may have been the reason all the same.
  const uint64_t before = rescues_;
  stop_engine();
  suspect(failure);
  if (Status status = make_sound(); !status.ok()) return status;
  return rescues_ > before || failure.code() == ErrorCode::CANCELLED ? Status() : failure;
}

// The file, or the directory that it was in, was removed: what it held is gone, and was meant to go.
Status Database::start_anew() {
  report("the cache file " + options_.path +
         " was removed or replaced while the daemon had it open; an empty cache is started in its place");
  stop_engine();
  if (options_.claim)
    if (Status status = options_.claim(); !status.ok()) return status;
  if (Status status = open_file(true); !status.ok()) return status;
  suspected_ = true;
  if (Status status = start_engine(); !status.ok()) return status;
  Status status = load();
  return status.code() == ErrorCode::CORRUPT ? rescue(status) : status;
}

Status Database::rescue(const Status& why) {
  stop_engine();
  RescueOptions how{options_.path, options_.engine, options_.map_bytes, options_.now_ms(), why.message()};
  auto rescued = rescue_file(fd_, how);
  if (!rescued) return rescued.status();
  ++rescues_;
  report(rescued->text());
  if (Status status = open_file(true); !status.ok()) return status;
  if (Status status = start_engine(); !status.ok()) return status;
  return load();
}

// LMDB uses a page again from the third transaction after the last one that had it.
void Database::wait_for_readers(uint64_t base_txn) {
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      std::erase_if(older_, [](const auto& old) { return old.expired(); });
      const bool in_use = std::any_of(older_.begin(), older_.end(), [&](const auto& old) {
        const auto snapshot = old.lock();
        return snapshot && snapshot->head.txn + 1 < base_txn;
      });
      if (!in_use) return;
    }
    usleep(200);
  }
}

// What LMDB has written is read back by other code than its own before anybody is told that it is there.
Status Database::check_written(const Batch& batch) const {
  for (const Batch::Write& write : batch.writes) {
    const auto& tree = current_->tables[static_cast<int>(write.table)];
    auto found = tree ? find_value(current_->reader(), *tree, write.key)
                      : Result<Bytes>(Status(ErrorCode::NOT_FOUND, {}));
    const bool holds = write.value ? found.ok() && found->view() == *write.value
                                   : found.status().code() == ErrorCode::NOT_FOUND;
    if (!holds)
      return Status(ErrorCode::CORRUPT, "what was written to the table " +
                                            std::string(table_name(write.table)) + " of " + options_.path +
                                            " does not read back" +
                                            (found.ok() ? "" : ": " + found.status().message()));
  }
  return {};
}

Status Database::commit(const Snapshot& base, Batch batch) {
  if (Status status = start_engine(); !status.ok()) return status;
  batch.base_txn = base.head.txn;
  // LMDB would believe another one.
  if (const Heads heads = read_heads(*base.file); heads.newest != base.head)
    return Status(ErrorCode::CORRUPT, "a head page of " + options_.path + " is damaged");
  wait_for_readers(base.head.txn);
  stale_ = true;
  Status status = engine_->commit(batch);
  // A process that died may have been done: its head page says so. What it wrote is synced once more, because
  // nobody knows how far it came.
  const bool died = status.code() == ErrorCode::WORKER || status.code() == ErrorCode::CANCELLED;
  if (died) stop_engine();
  if (!status.ok() && !died) return status;
  if (Status loaded = load(&batch); !loaded.ok()) return loaded;
  if (current_->head.txn != batch.base_txn + 1)
    return !status.ok() ? status
                        : Status(ErrorCode::CORRUPT, "a commit to " + options_.path + " has left no trace");
  if (died && fdatasync(fd_) != 0) return storage_error(errno, "cannot sync " + options_.path);
  if (status = check_written(batch); !status.ok()) return status;
  if (!is_in_place())
    return Status(ErrorCode::IO, "the cache file " + options_.path + " was removed while it was written to");
  return {};
}

}  // namespace quern
