"""A session of the official client of the Model Context Protocol."""

import asyncio
import os
import sys

import pytest
import torch

import autogradviz

mcp = pytest.importorskip("mcp")


def test_client_lists_and_calls_the_tools(tmp_path):
    from mcp.client.stdio import StdioServerParameters, stdio_client

    with autogradviz.record() as trace:
        torch.rand(3, requires_grad=True).exp().sum().backward()
    trace.save(tmp_path / "x.agv")
    command = ["-m", "autogradviz", "mcp", str(tmp_path / "x.agv")]

    async def session():
        server = StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))
        async with stdio_client(server) as streams, mcp.ClientSession(*streams) as client:
            await client.initialize()
            listed = await client.list_tools()
            called = await client.call_tool("node", {"node": "ExpBackward0"})
            return len(listed.tools), called.content[0].text

    count, text = asyncio.run(session())
    assert count == 10
    assert '"slot": "result"' in text
