// What quern-store gives up before it looks at pages: LMDB believes what a damaged or forged file says, and a
// fault in it must reach nothing but that file.
#pragma once

namespace quern {

// No new privileges, and of system calls only those that LMDB and its server need once the file is open: to
// read and write what is open, to map memory, to end. Nothing is opened, made, started, signalled or
// connected any more; what is tried fails with EPERM. 0, or an errno.
int isolate_engine();

}  // namespace quern
