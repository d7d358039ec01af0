"""The server: the page, REST and MCP in one process, calling the same functions as the command line."""
