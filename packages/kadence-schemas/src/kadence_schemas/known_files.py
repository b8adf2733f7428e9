"""The files of google/type and confluent, which serialisers do not register: every library and registry has them.

A FileDescriptorSet, compressed, of googleapis-common-protos and confluent-kafka, without options
(tests/registry/test_known_files.py compares them). With these no reader needs the packages.
"""

from __future__ import annotations

import base64
import zlib
from functools import cache
from typing import Any, Final

__all__ = ["KNOWN_FILES", "known_file"]

KNOWN_FILES: Final = ("google/protobuf/", "google/type/", "confluent/")
"""Prefixes of the names of files that every registry and library has."""


def known_file(name: str) -> Any:
    """The descriptor of a file; None if it is not one of these."""
    return _files().get(name)


@cache
def _files() -> dict[str, Any]:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    found = FileDescriptorSet.FromString(zlib.decompress(base64.b64decode(_PACKED)))
    return {file.name: file for file in found.file}


_PACKED: Final = (
    "eNqNV81u20YQDvVncWTHCpM0ip0mji8t0kZO3aAIjF5kiYqdypIiSwlSoCXW0koiQpEKSTmRL7n01mfoExQFeisK9NAXKdCiz1Gg"
    "M7sUJco0nBt3Z3bmm9n5ZpbwuwL3B44zsPiOPx3znS6zuN1jrjHmrun0imPX8R0tJ1WKpPLgPVwtB1pNoaTdg81yqabXK6WW0dRb"
    "h42K0akfN/XyYfVQr+SvaCuQrJRe5RUtC6mXuv5NPqGtgVpttNr1w6cH7XxSUyF91Ki3D/IpLQcrzzulVltv5dN04KBUq+Yz9PVK"
    "L7XyKycZAepL+EWBWxHsjuW4MYg37gZaQnQy6e+8ddkYA/Sk8vZ3kC7TWXSddHmvoGwpnxLC9MDl3C4kxHIVUifWhBeSYvUA0swa"
    "D1khhcvc7mYx8DdzUaxaDvNfMDwR4jXgo0W4PebzGLTbjyBVQRE5nHLmCjRpQjNybH8o0KQJaY9NBZh06OCvBGwse/DNEf+gnPQm"
    "LvNNxw5y8rcCWYLRxvMfDoVkQ2fieiIvaW0dVkamPfG5V0jPNjzedeyeV8jMDtjMdrzCiljuAEz8ruH0+x73C1mR3NvnklsJsB5c"
    "wYtQKUTjzLF5QRX6N4sLgRYpgG9ReHBlfw1yQlda3/4EsjOhBpAw5cWrhPEUiwPtiwjVML9Ils1ofqdO/y3nr+No8oMCaoVNG/2X"
    "qKBtwi1kgNGoGlT/S/QAyGDxS4Zg9bc7+jEtBEle6pW6XCbxGrLtg05LrFJ0qto6pO80SY5L7U6LVhmSHHeEvTlZnsHtCHTeNUfM"
    "iqu/AqxUpJQu55RKWCYmtPU+Wsj83TiOdttNSOko0hAPqXBPpFTmGC37pm9xmWHtOuR63Ou65piuVdSSquUhazldcdGinOYAeLTO"
    "+y7rzks3CmIXstVArF0D1Z6MONaOI2s5KR3bDhap2CQ0ydDNH0rUj2n73D2NzdrGvWU+UaV5PhuNA0INIXsYnNeKAChyfYOUBJLc"
    "7sa5Km/PLGifQxb7rdROXKYdwv8eCovoLeZb9iAuRw8hU2N+zR6IlGPC/UlPwlIoZ5ZjD+QW+VZC+yPYitjHu7LMM444+Ts/zs9j"
    "WKvNlNqoQ32FdIOauAlrFrMHEzbgRtcJ3M0v3Yp2e2xBfBrn5WscJSQje92J63K7O5X2wtKb2KbvycueN6BoL/1HOefOH8bx/FdF"
    "+POH6O+amGFL7EZGPyvVcaIRvZGoVX2/JVYJMfVKrfKBHIClZuuwhsTGaXkkWI0j71mnrsvh96xTQz4Tt0udp53jdj5L7eFYb7b1"
    "o32clSo5apTbDVoAOao3XkhRjlYVvSxXq2GM/ypwdzHG8RDzZiBFTngsoX9WINcknbpQwYBz/IuvHgcnZHqxJT/B6h46WN3hJeZ2"
    "tyM9ecFI8ZhUy6iJJ7HYsBy47YVNYOMRxjjTILa6fIDCxfu8CpkAgKiX/QykXpt2L4zyt0S0TscO0sQyWK9HLSkuzv8UWGsKrZJU"
    "Il64/NQMG1h6GUoivoKTs+4WOBWbopdpN2DVw7hMeyB302J3E66zHnYj0/NpxJ1yg7mciVkZNkTL9KdiXArL3uQk3MzOUATBGZZp"
    "4+hVt5K4jaXjYl8fm9zG4gexhyAcd8Bs80y22VyEcSO4s5i4NxN8D7j2BY0Wb/15qIDlrLwLOgh+TmXnoM8zkRPx+VZkQlkYK5Hp"
    "St3O6eOMjfP2DajU8Bp9HLHzR4ey/OhILD86ktFHRyrCeRfuoFYfB57tx43Jq6FUgti7YFKuUiGPKdnhI2KNNDx6XS/1mZNzPk+Z"
    "azLbv8DnA1h5IRWoHEbcZ/jKY4HbEAW5nPP8xzTcmDuhM4FxNdzd2Dr3Hgzm8exJvf2TAqkjPCsefE43YN9nkBkzl40o10nxEp4D"
    "Ju1iU0h123enot+zAd0CFd9dSLsTi9Mt0Mn1hZMt3N94iN1m4TC6fc2n8yY+j1TdSzxRsO+n6Bg5sdlo1h0CsJKfKKKXSEBLFHlv"
    "LEnHvRKofdPiBmVHu3P+OY+yhniceIU/5bN0fSnSvaewiiPYI/ILK/fOWTmS4ssMlQH6Jrd60szHMWBQeJkRDIhjX7woIB1ll5mo"
    "wbowITItDd2PNST+cy6xNqvG/wG5sxvc"
)
