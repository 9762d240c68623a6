"""A bad link: passes Ethernet frames on between two interfaces, each one late, and loses some; see README.md.

    bad_link.py INTERFACE INTERFACE DELAY_IN_SECONDS LOST_SHARE

Prints a line when it passes frames on. The frames carry the kernel's virtio header, since the kernel leaves their
checksums and their segmentation to the last interface.
"""

import collections
import errno
import random
import select
import socket
import sys
import time

ALL_PROTOCOLS = 3
SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 15, 23
LARGEST_FRAME = 10 + 14 + 65536  # the virtio header, Ethernet's, and the longest packet


def open_interface(name):
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
    end.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    end.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    end.bind((name, 0))
    return end


def main():
    ends = [open_interface(name) for name in sys.argv[1:3]]
    delay, lost = map(float, sys.argv[3:])
    draw = random.Random(0)
    waiting = collections.deque()  # (when to send, where to, the frame)
    print("passes frames on", flush=True)
    while True:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for end in select.select(ends, [], [], timeout)[0]:
            frame = end.recv(LARGEST_FRAME)
            if draw.random() >= lost:
                waiting.append((time.monotonic() + delay, ends[1 - ends.index(end)], frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, end, frame = waiting.popleft()
            try:
                end.send(frame)
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # the queue of the interface is full: the frame is lost too
                    raise


main()
