"""Exports as providers write them, with amounts of our own, and ways to read them."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

from worker.invoice.converting import convert
from worker.invoice.reading import ReadingRules, read_export
from worker.periods import load_zone

if TYPE_CHECKING:
    from pathlib import Path

    from worker.invoice.converting import Invoice
    from worker.invoice.reading import Tally

MONTH = date(2026, 10, 1)
FIRST, SECOND = date(2026, 10, 1), date(2026, 10, 2)

OPENAI_USAGE = """\
start_time,end_time,start_time_iso,end_time_iso,project_id,num_model_requests,user_id,api_key_id,\
model,batch,service_tier,input_tokens,output_tokens,input_cached_tokens,input_uncached_tokens
1790812800,1790899200,2026-10-01T00:00:00+00:00,2026-10-02T00:00:00+00:00,proj_a,10.0,,,\
gpt-4o-2024-08-06,FALSE,default,1200.0,300.0,200.0,1000.0
1790899200,1790985600,2026-10-02T00:00:00+00:00,2026-10-03T00:00:00+00:00,,,,,,,,,,,
1790899200,1790985600,2026-10-02T00:00:00+00:00,2026-10-03T00:00:00+00:00,proj_a,1.0,,,\
o3-mini,FALSE,default,7.0,8.0,0.0,7.0
"""
OPENAI_COST = """\
start_time,end_time,start_time_iso,end_time_iso,amount_value,amount_currency,line_item,project_id
1790812800,1790899200,2026-10-01T00:00:00+00:00,2026-10-02T00:00:00+00:00,0.1000000000000000,usd,\
"gpt-4o-2024-08-06, input",proj_a
1790812800,1790899200,2026-10-01T00:00:00+00:00,2026-10-02T00:00:00+00:00,0.0200000000040000,usd,\
"gpt-4o-2024-08-06, output",proj_a
1790899200,1790985600,2026-10-02T00:00:00+00:00,2026-10-03T00:00:00+00:00,,,,
"""
ANTHROPIC_USAGE = """\
usage_date_utc,model_version,api_key,workspace,usage_type,context_window,\
usage_input_tokens_no_cache,usage_input_tokens_cache_write_5m,usage_input_tokens_cache_write_1h,\
usage_input_tokens_cache_read,usage_output_tokens,web_search_count,inference_geo,speed
2026-10-01,claude-sonnet-4-5-20250929,k,Default,standard,≤ 200k,100,20,3,4000,50,0,global,
2026-10-02,claude-sonnet-4-5-20250929,k,Default,standard,≤ 200k,1,0,0,0,2,0,global,
"""
ANTHROPIC_COST = """\
usage_date_utc,model,workspace,api_key,usage_type,context_window,token_type,cost_usd,\
list_price_usd,cost_type,inference_geo,speed
2026-10-01,Claude Sonnet 4.5,Default,k,message,≤ 200k,input_no_cache,0.19,0.19,token,global,
2026-10-01,Claude Sonnet 4.5,Default,k,message,≤ 200k,output,0.03,0.03,token,global,
"""
OPENROUTER_GENERATIONS = """\
generation_id,created_at,cost_total,cost_web_search,cost_cache,tokens_prompt,tokens_completion,\
tokens_reasoning,tokens_cached,model_permaslug,provider_name
gen-1,2026-10-01 03:46:57.713,0.0123,0,0,10389,137,0,9000,openai/gpt-4o-2024-08-06,OpenAI
gen-2,2026-10-02 23:59:59.999,-0.0001,0,0,1,2,0,0,openai/gpt-4o-2024-08-06,OpenAI
"""
OPENROUTER_ACTIVITY = """\
Date,Slug,Usage,BYOK Usage,Requests,Prompt Tokens,Completion Tokens,Reasoning Tokens
"2026-10-01 00:00:00","anthropic/claude-sonnet-4.5","4.07","0","4","70965665","3009973","0"
"""
LITELLM = """\
request_id,call_type,api_key,spend,total_tokens,prompt_tokens,completion_tokens,startTime,endTime,\
model,model_group
a,acompletion,hash,1.5e-05,30,20,10,2026-10-01 10:00:00.123,2026-10-01 10:00:01,gpt-4o,chat
b,acompletion,hash,0.25,300,200,100,2026-10-02 10:00:00,2026-10-02 10:00:01,gpt-4o,chat
"""
AZURE = """\
InvoiceSectionName,SubscriptionId,Date,MeterCategory,MeterName,Quantity,CostInBillingCurrency,\
BillingCurrencyCode
s,1,10/01/2026,Cognitive Services,gpt 4o 0806 Inp glbl Tokens,12.5,3.125,EUR
s,1,10/02/2026,Storage,Hot LRS Data Stored,1,0.5,EUR
"""
AWS_CUR = """\
line_item_usage_account_id,line_item_product_code,line_item_usage_start_date,\
line_item_usage_type,line_item_unblended_cost,line_item_currency_code
1,AmazonBedrock,2026-10-01T00:00:00.000Z,USE1-Claude-input-tokens,1.25,USD
1,AmazonS3,2026-10-01T00:00:00.000Z,Requests-Tier1,0.75,USD
1,AmazonBedrock,2026-10-02T13:00:00.000Z,USE1-Claude-output-tokens,0.5,USD
"""


def rules(**more: Any) -> ReadingRules:
    """For October of 2026 in UTC and USD, but for what is given; zones by name."""
    zones = {name: load_zone(more.pop(name, "UTC")) for name in ("billing", "zone")}
    return ReadingRules(**{"month": MONTH, "billing_currency": "USD", **zones, **more})


def tally(folder: Path, content: str | bytes, **more: Any) -> Tally:
    """The content as a file, read."""
    path = folder / "export.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_export(path, rules(**more))


def invoice(folder: Path, content: str, **more: Any) -> Invoice:
    """The content as a file, read, in a billing currency of USD without any rates."""
    return convert(tally(folder, content, **more), "USD", {})
