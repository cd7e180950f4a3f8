"""The jobs of a tick: each a module with ``async def run(ctx) -> JobCounts``."""
